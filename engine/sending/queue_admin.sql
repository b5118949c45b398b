-- name: owed_rows
-- Return the next $1 queue rows after message $2 and domain $3 up to message $4, without bodies: of domains $5, account
-- $6, message $7 and under hold $8, each ignored if null.
SELECT q.message_id, q.domain, q.shard, q.account_id, q.from_domain, q.recipients::text, q.total, q.due_at, q.attempts,
       q.signature, q.waiting, NULL::bytea AS mime, false AS smtputf8, q.accepted_at AS released_at, q.deliver_by, q.min_tls,
       q.priority, true AS suspect, q.waits, q.forgets, NULL::bytea AS content_key, q.traceparent
FROM queue q
WHERE (q.message_id, q.domain) > ($2::uuid, $3::text) AND q.message_id <= $4
  AND ($5::text[] IS NULL OR q.domain = ANY($5)) AND ($6::uuid IS NULL OR q.account_id = $6)
  AND ($7::uuid IS NULL OR q.message_id = $7) AND ($8::uuid IS NULL OR q.held_by = $8)
ORDER BY q.message_id, q.domain LIMIT $1;

-- name: count_owed
-- Count the rows up to message $1 with the same filters.
SELECT count(*) AS rows FROM queue q
WHERE q.message_id <= $1
  AND ($2::text[] IS NULL OR q.domain = ANY($2)) AND ($3::uuid IS NULL OR q.account_id = $3)
  AND ($4::uuid IS NULL OR q.message_id = $4) AND ($5::uuid IS NULL OR q.held_by = $5);

-- name: bring_forward
-- Make rows with messages $1 and domains $2 due at $3, free of hold $4 (null: only rows without a hold), show it on
-- their recipients, and return the rows changed.
WITH n AS (
    SELECT * FROM unnest($1::uuid[], $2::text[], $3::timestamptz[]) AS n (message_id, domain, due_at)
), row AS (
    UPDATE queue q SET due_at = n.due_at, held_by = NULL, waiting = NULL
    FROM n WHERE q.message_id = n.message_id AND q.domain = n.domain AND q.held_by IS NOT DISTINCT FROM $4
    RETURNING q.message_id, q.domain, q.recipients, q.due_at, q.attempts
), recipient AS (
    UPDATE recipients r SET next_attempt_at = row.due_at
    FROM row, jsonb_array_elements(row.recipients) AS pair
    WHERE row.attempts > 0 AND r.message_id = row.message_id AND r.n = (pair ->> 0)::smallint AND r.status = 'sending'
)
SELECT message_id, domain FROM row;

-- name: lock_rows
-- Lock the rows with messages $1 and domains $2 and return the attempts that each has seen.
SELECT q.message_id, q.domain, q.attempts FROM unnest($1::uuid[], $2::text[]) AS n (message_id, domain)
JOIN queue q ON q.message_id = n.message_id AND q.domain = n.domain FOR UPDATE OF q;
