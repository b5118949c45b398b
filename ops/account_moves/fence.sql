-- name: unit_around
-- Return the accounts $1 with their parents, sub-accounts, and all accounts that share a member with one of them, each
-- with what the move needs to know.
SELECT a.id, a.parent_id, a.name, a.status, a.status_before_move, d.began_at IS NOT NULL AS is_erased,
       EXISTS (SELECT FROM platform p WHERE p.account_id = a.id) AS is_platform,
       ARRAY(SELECT m.user_id FROM members m WHERE m.account_id = a.id ORDER BY 1) AS people,
       ARRAY(SELECT s.pool FROM source_assignments s WHERE s.account_id = a.id ORDER BY 1) AS pools
FROM accounts a LEFT JOIN deletions d ON d.account_id = a.id
WHERE a.id = ANY ($1::uuid[]) OR a.parent_id = ANY ($1::uuid[])
   OR a.id IN (SELECT c.parent_id FROM accounts c WHERE c.id = ANY ($1::uuid[]))
   OR a.id IN (SELECT o.account_id FROM members m JOIN members o ON o.user_id = m.user_id
               WHERE m.account_id = ANY ($1::uuid[]))
ORDER BY a.id;

-- name: strangers_of
-- Return people without a membership whose last account is one of $1.
SELECT u.id FROM users u WHERE u.last_account_id = ANY ($1::uuid[])
  AND NOT EXISTS (SELECT FROM members m WHERE m.user_id = u.id);

-- name: installation
-- Return what cells must agree on.
SELECT shards, pepper_print FROM installation;

-- name: moves_of
-- Return the moves of which account $1 is a part.
SELECT v.account_id, v.unit, v.direction, v.other_cell, v.people FROM account_moves v
WHERE v.unit = (SELECT o.unit FROM account_moves o WHERE o.account_id = $1);

-- name: message_holds
-- Return the messages that an operator holds.
SELECT target FROM holds WHERE kind = 'message';

-- name: own_messages
-- Return those of the messages $2 that are of accounts $1.
SELECT id FROM messages WHERE account_id = ANY ($1::uuid[]) AND id = ANY ($2::uuid[]);

-- name: arrive
-- Make a place for accounts $1 of unit $2, which come from cell $3.
INSERT INTO account_moves (account_id, unit, direction, other_cell, began_at)
SELECT n.id, $2, 'arriving', $3, now() FROM unnest($1::uuid[]) AS n (id);

-- name: leave
-- Begin the move of accounts $1 of unit $2 with people $4 to cell $3: from the commit on, their mail, posts and jobs wait.
WITH moved AS (
    INSERT INTO account_moves (account_id, unit, direction, other_cell, people, began_at)
    SELECT n.id, $2, 'leaving', $3, CASE WHEN n.id = $2 THEN $4::uuid[] ELSE '{}' END, now() FROM unnest($1::uuid[]) AS n (id)
)
UPDATE accounts SET status_before_move = status, status = 'moving' WHERE id = ANY ($1::uuid[]);

-- name: lock_heads
-- Lock the heads of accounts $1.
SELECT account_id FROM account_heads WHERE account_id = ANY ($1::uuid[]) ORDER BY account_id FOR UPDATE;

-- name: close_logs
-- Close the logs of accounts $1, whose heads the caller has locked.
UPDATE account_heads SET closed_at_seq = seq WHERE account_id = ANY ($1::uuid[]);

-- name: reopen
-- Give accounts $1 back their logs and their status, and forget the move.
WITH opened AS (
    UPDATE account_heads SET closed_at_seq = NULL WHERE account_id = ANY ($1::uuid[])
), over AS (
    DELETE FROM account_moves WHERE account_id = ANY ($1::uuid[])
), drained AS (
    DELETE FROM account_move_drains WHERE account_id = ANY ($1::uuid[])
)
UPDATE accounts SET status = status_before_move, status_before_move = NULL
WHERE id = ANY ($1::uuid[]) AND status = 'moving';

-- name: free_queue
-- Make the deliveries of accounts $1 due that were held by holds of the other cell.
UPDATE queue SET held_by = NULL, waiting = NULL, due_at = clock_timestamp()
WHERE account_id = ANY ($1::uuid[]) AND held_by IS NOT NULL AND held_by NOT IN (SELECT id FROM holds);

-- name: cache_kinds
-- Return the kinds of caches.
SELECT kind FROM stamps ORDER BY kind;

-- name: now_and_xid
-- Return the database's time and the id of this transaction.
SELECT clock_timestamp() AS at, pg_current_xact_id()::text::bigint AS xid;

-- name: undrained
-- Return why accounts $1 and people $2, which were marked at $3 by transaction $4, are still in work: `known_s` $5 after
-- the mark, every delivering process must have reported that it has none of their deliveries.
SELECT CASE
    WHEN pg_snapshot_xmin(pg_current_snapshot())::text::bigint <= $4 THEN 'a transaction from before the mark is open'
    WHEN EXISTS (
        SELECT FROM shard_members s CROSS JOIN unnest($1::uuid[]) AS n (id)
        LEFT JOIN account_move_drains r ON r.member_id = s.id AND r.account_id = n.id
            AND r.seen_at > $3::timestamptz + make_interval(secs => $5)
        WHERE r.in_hand IS NULL OR r.in_hand > 0  -- a lapsed lease fences nobody before its row is deleted
    ) THEN 'a process is delivering their mail'
    WHEN EXISTS (SELECT FROM webhook_queue q WHERE q.account_id = ANY ($1::uuid[]) AND q.leased_until > now())
        THEN 'a webhook post has no answer yet'
    WHEN EXISTS (SELECT FROM system_mail s WHERE s.due_at <= now()
                 AND s.address IN (SELECT u.email FROM users u WHERE u.id = ANY ($2::uuid[])))
         AND EXISTS (SELECT FROM platform)
        THEN 'a mail to one of their people waits'
END AS reason;

-- name: oldest_running
-- Return the oldest transaction that may still write.
SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS xid;

-- name: forget_label
-- Delete the receiving labels of accounts $1, which a trigger has made.
DELETE FROM receiving_labels WHERE account_id = ANY ($1::uuid[]);

-- name: detach_people
-- End what ties accounts $1 and people $2 to accounts and people that stay: the account that somebody used last, who
-- sent an invitation, and views of former members, which their account's owner gets.
WITH person AS (
    UPDATE users SET last_account_id = NULL
    WHERE id = ANY ($2::uuid[]) AND last_account_id <> ALL ($1::uuid[])
       OR id <> ALL ($2::uuid[]) AND last_account_id = ANY ($1::uuid[])
), invite AS (
    UPDATE invites SET invited_by = NULL WHERE account_id = ANY ($1::uuid[]) AND invited_by <> ALL ($2::uuid[])
)
UPDATE saved_views v SET user_id = (
    SELECT m.user_id FROM accounts a JOIN members m ON m.account_id = coalesce(a.parent_id, a.id) AND m.role = 'owner'
    WHERE a.id = v.account_id ORDER BY m.user_id LIMIT 1)
WHERE v.account_id = ANY ($1::uuid[]) AND v.user_id <> ALL ($2::uuid[]);

-- name: forget_move
-- Delete the marks of accounts $1.
WITH drained AS (
    DELETE FROM account_move_drains WHERE account_id = ANY ($1::uuid[])
)
DELETE FROM account_moves WHERE account_id = ANY ($1::uuid[]);

-- name: claimed_names
-- Return the names of accounts $1 and people $2 that cell $3 alone may have.
SELECT 'email' AS kind, u.email AS name, $3::text AS cell, u.id AS holder FROM users u WHERE u.id = ANY ($2::uuid[])
UNION ALL
SELECT 'domain', d.name, $3, d.account_id FROM domains d WHERE d.account_id = ANY ($1::uuid[]) AND d.status = 'verified'
UNION ALL
SELECT 'identity', i.issuer || ' ' || i.subject, $3, i.user_id FROM identities i WHERE i.user_id = ANY ($2::uuid[]);
