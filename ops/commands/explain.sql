-- name: message_to_explain
-- The current state of message $1.
SELECT id, status, source, sender, subject, scheduled_at, delivered_at, traceparent FROM messages WHERE id = $1;

-- name: recipients_to_explain
-- The recipients of message $1.
SELECT address, status, attempts, next_attempt_at FROM recipients WHERE message_id = $1 ORDER BY n;

-- name: events_to_explain
-- The waybill of message $1.
SELECT type, occurred_at, payload FROM events WHERE message_id = $1 ORDER BY seq;
