-- name: count_events
-- Events of account $1 by type.
SELECT type AS name, count(*) AS rows FROM events WHERE account_id = $1 GROUP BY type;

-- name: count_statuses
-- Messages of account $1 by status.
SELECT status AS name, count(*) AS rows FROM messages WHERE account_id = $1 GROUP BY status;

-- name: count_queued
-- Rows left in the queue.
SELECT count(*) AS rows FROM queue;

-- name: read_head
-- The end of the log of account $1, and what it sent.
SELECT seq, hash, sent_this_month FROM account_heads WHERE account_id = $1;

-- name: read_log_after
-- The log of account $1 after seq $2, at most $3 events.
SELECT seq, occurred_at, payload, hash FROM events WHERE account_id = $1 AND seq > $2 ORDER BY seq LIMIT $3;
