-- name: lock_schedule
-- Lock the scheduled message $1 of account $2: the transaction that holds the row decides what happens to the message.
SELECT due_at, deliver_by, (SELECT m.traceparent FROM messages m WHERE m.id = $1 AND m.account_id = $2) AS traceparent
FROM schedules WHERE message_id = $1 AND account_id = $2 FOR UPDATE;

-- name: status_of
-- Return the status of message $1 of account $2.
SELECT status FROM messages WHERE id = $1 AND account_id = $2;

-- name: cancel_message
-- Set message $1 and its recipients to canceled, and remove its schedule.
WITH message AS (
    UPDATE messages SET status = 'canceled' WHERE id = $1 AND status = 'scheduled'
), recipient AS (
    UPDATE recipients SET status = 'canceled' WHERE message_id = $1 AND status = 'scheduled'
)
DELETE FROM schedules WHERE message_id = $1;
