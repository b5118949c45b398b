-- name: recipients_of
-- Return the recipients of messages $1, whose ids lie between $2 and $3.
SELECT message_id, n::int AS n, account_id, address, status FROM recipients
WHERE message_id = ANY ($1::uuid[]) AND message_id BETWEEN $2 AND $3;

-- name: lock_recipients
-- Lock and return the recipients of messages $1, whose ids lie between $2 and $3.
SELECT message_id, n::int AS n, account_id, address, status FROM recipients
WHERE message_id = ANY ($1::uuid[]) AND message_id BETWEEN $2 AND $3
ORDER BY message_id, n FOR NO KEY UPDATE;

-- name: deliveries_of
-- Return when messages $1 were delivered to which recipients. No event of theirs has an id below $2.
SELECT message_id, occurred_at, payload FROM events
WHERE message_id = ANY ($1::uuid[]) AND id >= $2 AND type = 'delivered' AND payload IS NOT NULL;

-- name: write_bounces
-- Write a batch of bounces under the locks of its heads and recipients: recipients, messages whose present status is among
-- `moves` (comma-separated), counts of days, events with their posts to webhooks, the tips of the account logs, and the
-- results of the reports. A recipient counts as settled once, so its delivery is subtracted from the day that counted it.
-- `low` and `high` bound the ids for partition pruning, on both sides as in settle.sql.
WITH recipient_updated AS (
    UPDATE recipients r SET status = 'bounced', last_response = bounced.response
    FROM :bounced
    WHERE r.message_id = bounced.message_id AND r.n = bounced.n AND r.message_id BETWEEN :low AND :high
      AND bounced.message_id BETWEEN :low AND :high AND r.status = 'delivered'
), message_updated AS (
    UPDATE messages m SET status = moved.status
    FROM :moved
    WHERE m.id = moved.id AND m.status = ANY (string_to_array(moved.moves, ',')) AND m.id BETWEEN :low AND :high
      AND moved.id BETWEEN :low AND :high
), day_counted AS (
    INSERT INTO account_days AS d (account_id, day, bounced, delivered)
    SELECT counted.account_id, counted.day, counted.bounced, -counted.taken_back FROM :counted WHERE counted.bounced > 0
    ON CONFLICT (account_id, day) DO UPDATE
    SET bounced = d.bounced + excluded.bounced, delivered = greatest(0, d.delivered + excluded.delivered)
), earlier_day_counted AS (
    UPDATE account_days d SET delivered = greatest(0, d.delivered - counted.taken_back)
    FROM :counted WHERE d.account_id = counted.account_id AND d.day = counted.day AND counted.bounced = 0
), finished AS (
    :report_finish
), sealed AS (
    SELECT event.* FROM :event
), :append_events
UPDATE account_heads h SET seq = tip.seq, hash = tip.hash FROM :tip WHERE h.account_id = tip.account_id;

-- name: forwards_among
-- Return those of the messages $1, with ids from $2 to $3, that forward a received message and have bounced.
SELECT id, metadata->>'inbound_message_id' AS received FROM messages
WHERE id = ANY ($1::uuid[]) AND id BETWEEN $2 AND $3 AND source = 'forward' AND status = 'bounced';

-- name: look_at_forwards
-- Queue the received messages $1 whose last forwards, the sent messages $2, have bounced: the forwarder looks at the
-- status of the sent message. A message that is being forwarded again stays as it is queued.
INSERT INTO inbound_forwards (message_id, account_id, forward_to, due_at, sent_as)
SELECT m.id, m.account_id, r.address, now(), sent.id
FROM unnest($1::uuid[], $2::uuid[]) AS sent (received, id)
JOIN inbound_messages m ON m.id = sent.received AND m.forwarded_as = sent.id
JOIN recipients r ON r.message_id = sent.id AND r.n = 0
ON CONFLICT (message_id) DO NOTHING;
