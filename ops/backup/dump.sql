-- name: snapshot
-- Time of this transaction's snapshot, and the server's version.
SELECT to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') AS made_at,
       current_setting('server_version') AS postgres;

-- name: in_flight
-- Counts of pending deliveries, scheduled messages, webhook posts and Waybill's own mail.
SELECT (SELECT count(*) FROM queue) AS deliveries, (SELECT count(*) FROM schedules) AS scheduled,
       (SELECT count(*) FROM webhook_queue) AS webhook_posts, (SELECT count(*) FROM system_mail) AS system_mail;

-- name: log_heads
-- The end of each account log.
SELECT account_id, seq, hash FROM account_heads ORDER BY account_id;

-- name: queued
-- All pending deliveries.
SELECT message_id, domain, attempts FROM queue ORDER BY message_id, domain;
