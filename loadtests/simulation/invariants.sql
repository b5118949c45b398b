-- name: left_over
-- Count what is not final: deliveries, schedules and posts to webhooks.
SELECT 'queue' AS kind, count(*) AS rows FROM queue HAVING count(*) > 0
UNION ALL SELECT 'schedules', count(*) FROM schedules HAVING count(*) > 0
UNION ALL SELECT 'posts', count(*) FROM webhook_queue HAVING count(*) > 0;

-- name: members
-- List the members of the shards.
SELECT id FROM shard_members;

-- name: delivered_addresses
-- List the addresses whose delivery is on record.
SELECT address FROM recipients WHERE status = 'delivered';

-- name: stored_messages
-- List subject and id of all messages.
SELECT subject, id FROM messages ORDER BY id;

-- name: stored_recipients
-- List the recipients of all messages with their statuses.
SELECT m.subject, r.address, r.status, m.status AS whole FROM recipients r JOIN messages m ON m.id = r.message_id
ORDER BY m.id, r.n;

-- name: log_ends
-- Compare the account heads with their logs.
SELECT h.account_id, h.seq, count(e.seq) AS events, coalesce(max(e.seq), 0) AS last, count(DISTINCT e.seq) AS numbers
FROM account_heads h LEFT JOIN events e ON e.account_id = h.account_id GROUP BY 1, 2;

-- name: waybill_events
-- List subject and type of the events of all messages.
SELECT m.subject, e.type FROM messages m JOIN events e ON e.message_id = m.id;

-- name: posted_events
-- List id and type of all events.
SELECT id, type FROM events ORDER BY account_id, seq;

-- name: used_quota
-- Compare the counts of the account heads with messages and schedules.
SELECT h.account_id, h.sent_today, h.sent_this_month, h.scheduled,
       (SELECT count(*) FROM messages m WHERE m.account_id = h.account_id) AS messages,
       (SELECT count(*) FROM schedules s WHERE s.account_id = h.account_id) AS schedules
FROM account_heads h;

-- name: counted_days
-- Compare the counts of days with the statuses of recipients.
SELECT r.account_id, count(*) FILTER (WHERE r.status = 'delivered') AS delivered,
       count(*) FILTER (WHERE r.status = 'bounced') AS bounced,
       coalesce((SELECT sum(d.delivered) FROM account_days d WHERE d.account_id = r.account_id), 0) AS counted_delivered,
       coalesce((SELECT sum(d.bounced) FROM account_days d WHERE d.account_id = r.account_id), 0) AS counted_bounced
FROM recipients r GROUP BY 1;
