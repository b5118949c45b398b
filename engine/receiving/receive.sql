-- name: month_counts
-- Return how many messages the accounts $1, whose heads are locked, have received in month $2.
SELECT account_id, used FROM plan_usage WHERE account_id = ANY ($1::uuid[]) AND resource = 'received_messages' AND month = $2;

-- name: recent_copies
-- Return those of the digests $1 that the addresses $2 have received since $3.
SELECT r.digest, r.address_id FROM unnest($1::bytea[], $2::uuid[]) AS n (digest, address_id)
JOIN inbound_recent r ON r.digest = n.digest AND r.address_id = n.address_id AND r.stored_at > $3;

-- name: owners
-- Return the accounts of those of the sent messages $1, with ids from $2 to $3, that exist.
SELECT id, account_id FROM messages WHERE id = ANY ($1::uuid[]) AND id BETWEEN $2 AND $3;

-- name: insert_bytes
-- Store the bytes $2 of a large message under the id $1, with the text $3 that a search looks through.
INSERT INTO inbound_bytes (id, bytes, search_text) VALUES ($1, $2, $3);

-- name: drop_bytes
-- Delete the bytes $1, which no message refers to.
DELETE FROM inbound_bytes WHERE id = $1;

-- name: insert_received
-- Store received messages with their bytes, events and routed posts; count them, and save the heads, which the caller
-- has locked.
WITH raw AS (
    INSERT INTO inbound_bytes (:content.names) SELECT content.* FROM :content
), stored AS (
    INSERT INTO inbound_messages (:message.names) SELECT message.* FROM :message
), copy AS (
    INSERT INTO inbound_recent (:recent.names) SELECT recent.* FROM :recent
    ON CONFLICT (digest, address_id) DO UPDATE SET message_id = excluded.message_id, stored_at = excluded.stored_at
), counted AS (
    INSERT INTO inbound_counts AS c (account_id, address_id, address, domain, in_mailbox, is_spam, is_read, messages)
    SELECT change.account_id, change.address_id, min(change.address), min(change.domain), change.in_mailbox,
           change.is_spam, false, sum(change.messages)
    FROM :change GROUP BY change.account_id, change.address_id, change.in_mailbox, change.is_spam
    ON CONFLICT (account_id, address_id, in_mailbox, is_spam, is_read)
    DO UPDATE SET messages = c.messages + excluded.messages
), counted_days AS (
    INSERT INTO inbound_day_counts AS c (account_id, day, address_id, in_mailbox, is_spam, is_read, messages)
    SELECT change.account_id, change.day, place.address_id, change.in_mailbox, change.is_spam, false, sum(change.messages)
    FROM :change CROSS JOIN LATERAL (VALUES (change.address_id), (uuid '00000000-0000-0000-0000-000000000000')) AS place (address_id)
    GROUP BY change.account_id, change.day, place.address_id, change.in_mailbox, change.is_spam
    ON CONFLICT (account_id, day, address_id, in_mailbox, is_spam, is_read)
    DO UPDATE SET messages = c.messages + excluded.messages
), spent AS (
    INSERT INTO plan_usage AS u (account_id, resource, month, used)
    SELECT used.account_id, 'received_messages', used.month, used.messages FROM :used
    ON CONFLICT (account_id, resource, month) DO UPDATE SET used = u.used + excluded.used
), seen AS (
    UPDATE inbound_addresses a SET last_received_at = greatest(a.last_received_at, newest.at)
    FROM :newest WHERE a.id = newest.address_id
), sealed AS (
    SELECT event.* FROM :event
), :append_events, routed AS (
    INSERT INTO webhook_queue (webhook_id, event_id, account_id, seq, due_at)
    SELECT post.webhook_id, post.event_id, post.account_id, post.seq, now() FROM :post
), forwarded AS (
    INSERT INTO inbound_forwards (message_id, account_id, forward_to, due_at)
    SELECT forward.message_id, forward.account_id, forward.forward_to, now() FROM :forward
), forgotten AS (
    INSERT INTO inbound_forgets (message_id, account_id, event_id, look_at)
    SELECT forget.message_id, forget.account_id, forget.event_id, now() FROM :forget
)
UPDATE account_heads h SET seq = tip.seq, hash = tip.hash FROM :tip WHERE h.account_id = tip.account_id;
