-- name: take_due_forwards
-- Claim at most $1 messages that are due to be forwarded, or whose delivery is due to be looked at, for the time $2.
UPDATE inbound_forwards SET due_at = now() + $2, attempts = attempts + 1
WHERE message_id IN (
    SELECT message_id FROM inbound_forwards
    WHERE due_at <= now() AND account_id NOT IN (SELECT v.account_id FROM account_moves v)
    ORDER BY due_at LIMIT $1 FOR UPDATE SKIP LOCKED)
RETURNING message_id, account_id, forward_to, key, requested, sent_as, attempts;

-- name: forward_facts
-- Read received message $2 of account $1 as its forwarding needs it.
SELECT m.address, m.domain, m.recipient, m.envelope_from, host(m.remote_ip) AS remote_ip, m.helo, m.tls, m.sender,
       m.sender_address, m.subject, m.authentication, m.attachments, m.warnings, m.is_spam, m.size_bytes, m.raw_id,
       o.status AS account_status, EXISTS (SELECT 1 FROM inbound_forgets f WHERE f.message_id = m.id) AS forgets
FROM inbound_messages m JOIN accounts o ON o.id = m.account_id
WHERE m.account_id = $1 AND m.id = $2;

-- name: watch_delivery
-- Remember that message $1 under key $2 was accepted as $3, whose delivery is looked at after $4; return it unless it was
-- queued anew meanwhile.
UPDATE inbound_forwards SET sent_as = $3, attempts = 0, due_at = now() + $4 WHERE message_id = $1 AND key = $2
RETURNING message_id;

-- name: look_later
-- Look at the delivery of message $1 under key $2 again after $3.
UPDATE inbound_forwards SET due_at = now() + $3 WHERE message_id = $1 AND key = $2;

-- name: drop_forward
-- Remove message $1 under key $2 from the queue; return it unless it was removed or queued anew meanwhile.
DELETE FROM inbound_forwards WHERE message_id = $1 AND key = $2 RETURNING message_id;

-- name: sent_status
-- Return the status of sent message $2 of account $1.
SELECT status FROM messages WHERE account_id = $1 AND id = $2;
