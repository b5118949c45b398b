-- name: count_events
-- Events of account $1 by type.
SELECT type AS name, count(*) AS rows FROM events WHERE account_id = $1 GROUP BY type;

-- name: count_statuses
-- Messages of account $1 by status.
SELECT status AS name, count(*) AS rows FROM messages WHERE account_id = $1 GROUP BY status;

-- name: count_queued
-- Rows left in the queue.
SELECT count(*) AS rows FROM queue;

-- name: count_sent
-- How many messages account $1 sent this month.
SELECT sent_this_month FROM account_heads WHERE account_id = $1;
