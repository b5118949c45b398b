-- name: depths_by_domain
-- The $1 recipient domains with the most rows: counts of rows, recipients, rows due at $2, retries and held rows; time
-- of the oldest message, earliest due time, and rows of the whole queue.
SELECT q.domain AS name, count(*) AS rows, sum(jsonb_array_length(q.recipients))::bigint AS recipients,
       count(*) FILTER (WHERE q.due_at <= $2) AS due, count(*) FILTER (WHERE q.attempts > 0) AS retrying,
       count(*) FILTER (WHERE q.held_by IS NOT NULL) AS held, min(uuid7_ms(q.message_id)) AS oldest_ms,
       min(q.due_at) AS next_due, sum(count(*)) OVER ()::bigint AS total
FROM queue q GROUP BY q.domain ORDER BY rows DESC, name LIMIT $1;

-- name: depths_by_account
-- As depths_by_domain, by account.
SELECT q.account_id::text AS name, count(*) AS rows, sum(jsonb_array_length(q.recipients))::bigint AS recipients,
       count(*) FILTER (WHERE q.due_at <= $2) AS due, count(*) FILTER (WHERE q.attempts > 0) AS retrying,
       count(*) FILTER (WHERE q.held_by IS NOT NULL) AS held, min(uuid7_ms(q.message_id)) AS oldest_ms,
       min(q.due_at) AS next_due, sum(count(*)) OVER ()::bigint AS total
FROM queue q GROUP BY q.account_id ORDER BY rows DESC, name LIMIT $1;

-- name: depths_by_shard
-- As depths_by_domain, by shard.
SELECT q.shard::text AS name, count(*) AS rows, sum(jsonb_array_length(q.recipients))::bigint AS recipients,
       count(*) FILTER (WHERE q.due_at <= $2) AS due, count(*) FILTER (WHERE q.attempts > 0) AS retrying,
       count(*) FILTER (WHERE q.held_by IS NOT NULL) AS held, min(uuid7_ms(q.message_id)) AS oldest_ms,
       min(q.due_at) AS next_due, sum(count(*)) OVER ()::bigint AS total
FROM queue q GROUP BY q.shard ORDER BY rows DESC, name LIMIT $1;

-- name: waiting_domains
-- The $1 recipient domains with the most rows.
SELECT domain FROM queue GROUP BY domain ORDER BY count(*) DESC, domain LIMIT $1;

-- name: held_deliveries
-- Return at most $4 deliveries under a hold, with the hold, in the order of holds, messages and domains, after hold $1,
-- message $2 and domain $3.
SELECT q.held_by, q.message_id, q.domain, q.account_id, jsonb_array_length(q.recipients) AS recipients, q.attempts,
       h.kind, h.target, h.reason, h.created_at AS since, h.until
FROM queue q JOIN holds h ON h.id = q.held_by
WHERE q.held_by IS NOT NULL AND (q.held_by, q.message_id, q.domain) > ($1::uuid, $2::uuid, $3::text)
ORDER BY q.held_by, q.message_id, q.domain LIMIT $4;
