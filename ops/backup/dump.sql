-- name: snapshot
-- When this transaction's snapshot was taken, and by which server.
SELECT to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') AS made_at,
       current_setting('server_version') AS postgres;

-- name: in_flight
-- How much is on its way: deliveries, scheduled messages, posts to webhooks, mail of the service itself.
SELECT (SELECT count(*) FROM queue) AS deliveries, (SELECT count(*) FROM schedules) AS scheduled,
       (SELECT count(*) FROM webhook_queue) AS webhook_posts, (SELECT count(*) FROM system_mail) AS system_mail;

-- name: log_heads
-- Where each account's log ends.
SELECT account_id, seq, hash FROM account_heads ORDER BY account_id;

-- name: queued
-- Every delivery that waits or is being made.
SELECT message_id, domain, attempts FROM queue ORDER BY message_id, domain;
