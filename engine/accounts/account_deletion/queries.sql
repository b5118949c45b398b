-- name: schedule_deletion
-- Schedule the deletion of account $1 for $3, requested at $2; keeps an earlier request.
INSERT INTO deletions (account_id, requested_at, due_at) VALUES ($1, $2, $3) ON CONFLICT (account_id) DO NOTHING
RETURNING account_id;

-- name: read_deletion
-- Read the scheduled deletion of account $1.
SELECT account_id, requested_at, due_at, began_at FROM deletions WHERE account_id = $1;

-- name: cancel_deletion
-- Cancel the deletion of account $1, unless its erasure has begun.
DELETE FROM deletions WHERE account_id = $1 AND began_at IS NULL RETURNING account_id;

-- name: due_deletions
-- List deletions due at $1 or begun, the longest due first, at most $2.
SELECT account_id, requested_at, due_at, began_at FROM deletions
WHERE (due_at <= $1 OR began_at IS NOT NULL) AND account_id NOT IN (SELECT v.account_id FROM account_moves v)
ORDER BY due_at, account_id LIMIT $2;

-- name: begin_deletions
-- Mark the erasure of accounts $1 as begun at $2.
INSERT INTO deletions (account_id, requested_at, due_at, began_at) SELECT id, $2, $2, $2 FROM unnest($1::uuid[]) AS n (id)
ON CONFLICT (account_id) DO UPDATE SET began_at = coalesce(deletions.began_at, excluded.began_at);

-- name: keep_tombstone
-- Keep the end of the log of account $1, erased at $2.
INSERT INTO erased_accounts (account_id, opened_at, requested_at, erased_at, seq, hash)
SELECT a.id, a.created_at, d.requested_at, $2, h.seq, h.hash
FROM accounts a JOIN account_heads h ON h.account_id = a.id JOIN deletions d ON d.account_id = a.id WHERE a.id = $1;

-- name: read_tombstone
-- Read what remains of erased account $1.
SELECT account_id, opened_at, requested_at, erased_at, seq, hash FROM erased_accounts WHERE account_id = $1;
