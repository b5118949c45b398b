-- name: holds_in_force
-- Return the holds in force by the database's clock, the oldest first.
SELECT id, kind, target, reason, created_at, until FROM holds
WHERE NOT ended AND (until IS NULL OR until > (SELECT clock_timestamp())) ORDER BY created_at, id;

-- name: account_moves
-- Return the accounts that are on their way to another cell, or from one.
SELECT account_id FROM account_moves;

-- name: ended_holds
-- Return the holds that were resumed or have passed their end by the database's clock; their rows are to be released.
SELECT id, kind, target, reason, created_at, until FROM holds
WHERE ended OR until <= (SELECT clock_timestamp()) ORDER BY created_at, id;

-- name: put_hold
-- Create hold $1 of kind $2 on target $3 with reason $4 and end $5, or give an existing hold the new reason and end.
INSERT INTO holds (id, kind, target, reason, until, created_at) VALUES ($1, $2, $3, $4, $5, now())
ON CONFLICT (kind, target) WHERE NOT ended DO UPDATE SET reason = EXCLUDED.reason, until = EXCLUDED.until
RETURNING id, kind, target, reason, created_at, until;

-- name: end_hold
-- End the hold of kind $1 on target $2. Waits for transactions that put rows under it.
UPDATE holds SET ended = true WHERE kind = $1 AND target = $2 AND NOT ended
RETURNING id, kind, target, reason, created_at, until;

-- name: forget_hold
-- Delete hold $1, whose rows have all been released.
DELETE FROM holds WHERE id = $1;

-- name: lock_holds
-- Return those of the holds $1 that are in force, and keep them from ending before this transaction.
SELECT id FROM holds WHERE id = ANY($1::uuid[]) AND NOT ended FOR SHARE;

-- name: rows_to_hold
-- Lock the queue rows with messages $1 and domains $2 and return the hold that each is under.
SELECT q.message_id, q.domain, q.account_id, q.held_by
FROM unnest($1::uuid[], $2::text[]) AS n (message_id, domain)
JOIN queue q ON q.message_id = n.message_id AND q.domain = n.domain FOR NO KEY UPDATE OF q;

-- name: hold_rows
-- Put the rows with messages $1 and domains $2 under holds $3, due at $4; at most at the end of the message's time, when
-- the delivery ends.
UPDATE queue q SET held_by = n.held_by, due_at = least(n.due_at, q.deliver_by), waiting = 'operator_hold'
FROM unnest($1::uuid[], $2::text[], $3::uuid[], $4::timestamptz[]) AS n (message_id, domain, held_by, due_at)
WHERE q.message_id = n.message_id AND q.domain = n.domain;

-- name: report_drain
-- Record what process $1 has in memory of the moving accounts $2: deliveries $3.
INSERT INTO account_move_drains (member_id, account_id, in_hand, seen_at)
SELECT $1, n.account_id, n.in_hand, clock_timestamp() FROM unnest($2::uuid[], $3::integer[]) AS n (account_id, in_hand)
ON CONFLICT (member_id, account_id) DO UPDATE SET in_hand = excluded.in_hand, seen_at = excluded.seen_at;
