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
