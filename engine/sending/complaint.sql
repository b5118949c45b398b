-- name: recipient_address
-- Return the account and the address of recipient $2 of message $1, and the traceparent of the message.
SELECT account_id, address, (SELECT traceparent FROM messages WHERE id = $1) AS traceparent
FROM recipients WHERE message_id = $1 AND n = $2;

-- name: lock_recipient
-- Lock recipient $2 of message $1; return its status and whether a complaint of address $3 about the message is in the
-- log. Only payloads of complaints are cast: those of other events quote servers and may contain NUL, which jsonb
-- refuses.
SELECT r.status, EXISTS (
    SELECT 1 FROM events e WHERE e.message_id = $1
       AND CASE WHEN e.type = 'complained' THEN e.payload::jsonb #>> '{detail,recipient}' = $3 END) AS known
FROM recipients r WHERE r.message_id = $1 AND r.n = $2 FOR NO KEY UPDATE OF r;

-- name: mark_recipient
-- Set recipient $2 of message $1 to complained if its status is one of $3.
UPDATE recipients SET status = 'complained' WHERE message_id = $1 AND n = $2 AND status = ANY ($3::text[]);

-- name: statuses_of
-- Return the statuses of the recipients of message $1.
SELECT status FROM recipients WHERE message_id = $1;

-- name: mark_message
-- Set the status of message $1 to $2 if it is one of $3.
UPDATE messages SET status = $2 WHERE id = $1 AND status = ANY ($3::text[]);

-- name: count_complaint
-- Add one complaint to account $1 on day $2.
INSERT INTO account_days AS d (account_id, day, complained) VALUES ($1, $2, 1)
ON CONFLICT (account_id, day) DO UPDATE SET complained = d.complained + 1;
