-- name: standing_holds
-- The holds in force by the database's clock.
SELECT id, kind, target, reason, created_at, until FROM holds
WHERE NOT ended AND (until IS NULL OR until > (SELECT clock_timestamp())) ORDER BY created_at, id;

-- name: ended_holds
-- Holds that are over, by the operator's word or by time (the database's): their rows are to come back.
SELECT id, kind, target, reason, created_at, until FROM holds
WHERE ended OR until <= (SELECT clock_timestamp()) ORDER BY created_at, id;

-- name: put_hold
-- A hold $1 of kind $2 on target $3 for reason $4 until $5; one that stands already gets the new reason and end.
INSERT INTO holds (id, kind, target, reason, until) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (kind, target) WHERE NOT ended DO UPDATE SET reason = EXCLUDED.reason, until = EXCLUDED.until
RETURNING id, kind, target, reason, created_at, until;

-- name: end_hold
-- End the hold of kind $1 on target $2; waits for whoever is putting rows under it.
UPDATE holds SET ended = true WHERE kind = $1 AND target = $2 AND NOT ended
RETURNING id, kind, target, reason, created_at, until;

-- name: forget_hold
-- Hold $1, whose rows are all back.
DELETE FROM holds WHERE id = $1;

-- name: still_standing
-- Which of the holds $1 stand; none of them ends before this transaction does.
SELECT id FROM holds WHERE id = ANY($1::uuid[]) AND NOT ended FOR SHARE;

-- name: rows_to_hold
-- The queue rows with messages $1 and domains $2, locked, and under which hold they are already.
SELECT q.message_id, q.domain, q.account_id, q.held_by
FROM unnest($1::uuid[], $2::text[]) AS n (message_id, domain)
JOIN queue q ON q.message_id = n.message_id AND q.domain = n.domain FOR NO KEY UPDATE OF q;

-- name: hold_rows
-- Rows with messages $1 and domains $2 stand under holds $3 and fall due at $4.
UPDATE queue q SET held_by = n.held_by, due_at = n.due_at, waiting = 'operator_hold'
FROM unnest($1::uuid[], $2::text[], $3::uuid[], $4::timestamptz[]) AS n (message_id, domain, held_by, due_at)
WHERE q.message_id = n.message_id AND q.domain = n.domain;
