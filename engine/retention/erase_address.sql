-- name: next_sent
-- Return the next $4 messages of account $1 after message $3 with a recipient among the addresses $2.
SELECT DISTINCT message_id FROM recipients
WHERE account_id = $1 AND lower(address) = ANY ($2::text[]) AND message_id > $3 ORDER BY message_id LIMIT $4;

-- name: unsent_among
-- Return those of the messages $1 that are scheduled or queued.
SELECT m.id, EXISTS (SELECT FROM schedules s WHERE s.message_id = m.id) AS is_scheduled
FROM unnest($1::uuid[]) AS m (id)
WHERE EXISTS (SELECT FROM queue q WHERE q.message_id = m.id) OR EXISTS (SELECT FROM schedules s WHERE s.message_id = m.id);

-- name: erase_sent
-- Erase recipients with the addresses $3 from messages $2 of account $1, and the content of these messages; $4 and $5
-- bound the ids, $6 replaces the address, $7 are expressions that match it. A message to others too keeps its subject and
-- tags unless they name the address. Returns the messages.
WITH recipient AS (
    UPDATE recipients SET address = $6, name = NULL, last_response = NULL, next_attempt_at = NULL
    WHERE message_id = ANY ($2::uuid[]) AND message_id BETWEEN $4 AND $5 AND account_id = $1
      AND lower(address) = ANY ($3::text[])
), response AS (
    UPDATE recipients SET last_response = NULL
    WHERE message_id = ANY ($2::uuid[]) AND message_id BETWEEN $4 AND $5 AND account_id = $1
      AND NOT lower(address) = ANY ($3::text[]) AND lower(last_response) ~ ANY ($7::text[])
), content_key AS (
    DELETE FROM content_keys WHERE message_id = ANY ($2::uuid[])
), body AS (
    DELETE FROM message_bodies WHERE message_id = ANY ($2::uuid[]) AND message_id BETWEEN $4 AND $5
), report AS (
    DELETE FROM report_mails WHERE account_id = $1 AND message_id = ANY ($2::uuid[])
), copied AS (
    UPDATE broadcast_recipients SET address = $6 WHERE message_id = ANY ($2::uuid[]) AND lower(address) = ANY ($3::text[])
), others AS (
    SELECT DISTINCT message_id FROM recipients
    WHERE message_id = ANY ($2::uuid[]) AND message_id BETWEEN $4 AND $5
      AND NOT lower(address) = ANY ($3::text[]) AND address <> $6
)
UPDATE messages m SET metadata = NULL, attachments = NULL,
    reply_to = CASE WHEN m.id IN (SELECT message_id FROM others) AND NOT lower(reply_to) ~ ANY ($7::text[]) THEN reply_to END,
    tags = CASE WHEN NOT lower(tags::text) ~ ANY ($7::text[]) THEN tags END,
    subject = CASE WHEN m.id IN (SELECT message_id FROM others) AND NOT lower(subject) ~ ANY ($7::text[]) THEN subject ELSE '' END
WHERE m.account_id = $1 AND m.id = ANY ($2::uuid[]) AND m.id BETWEEN $4 AND $5;

-- name: scan_messages
-- Return the next $3 messages of account $1 after message $2, and whether anything but the sender names an address that
-- matches patterns $4 and expressions $5 (decision 0086).
SELECT id, text LIKE ANY ($4::text[]) AND text ~ ANY ($5::text[]) AS is_named FROM (
    SELECT id, lower(concat_ws(' ', reply_to, subject, tags::text, metadata::text, attachments::text)) AS text
    FROM messages WHERE account_id = ANY (ARRAY[$1::uuid]) AND id > $2 ORDER BY account_id, id LIMIT $3) m ORDER BY id;

-- name: scan_received
-- Return the next $3 received messages of account $1 after message $2, the message that each was forwarded as, and whether
-- sender, recipient or header name an address that matches patterns $4 and expressions $5.
SELECT id, forwarded_as, text LIKE ANY ($4::text[]) AND text ~ ANY ($5::text[]) AS is_named FROM (
    SELECT id, forwarded_as, lower(concat_ws(' ', address, recipient, envelope_from, sender::text, sender_address, reply_to::text,
        "to"::text, cc::text, subject, snippet, forward_to, forward_error, attachments::text)) AS text
    FROM inbound_messages WHERE account_id = ANY (ARRAY[$1::uuid]) AND id > $2 ORDER BY account_id, id LIMIT $3) m ORDER BY id;

-- name: unforward
-- Remove the received messages $1 from the queue of those to be forwarded.
DELETE FROM inbound_forwards WHERE message_id = ANY ($1::uuid[]);

-- name: erase_content
-- Delete the content of messages $2 of account $1, and what describes it; $3 and $4 bound the ids.
WITH content_key AS (
    DELETE FROM content_keys WHERE message_id = ANY ($2::uuid[])
), body AS (
    DELETE FROM message_bodies WHERE message_id = ANY ($2::uuid[]) AND message_id BETWEEN $3 AND $4
)
UPDATE messages SET subject = '', reply_to = NULL, tags = NULL, metadata = NULL, attachments = NULL
WHERE account_id = $1 AND id = ANY ($2::uuid[]) AND id BETWEEN $3 AND $4;

-- name: scan_copies
-- Return the next $3 recipients of broadcasts of account $1 after ($2, $4), and whether their address is among $5.
SELECT r.broadcast_id, r.contact_id, lower(r.address) = ANY ($5::text[]) AS is_named
FROM broadcasts b JOIN broadcast_recipients r ON r.broadcast_id = b.id
WHERE b.account_id = $1 AND (r.broadcast_id, r.contact_id) > ($2, $4) ORDER BY r.broadcast_id, r.contact_id LIMIT $3;

-- name: erase_copies_of
-- Replace the address of recipients $2 of broadcasts $1 by $3.
UPDATE broadcast_recipients r SET address = $3 FROM unnest($1::uuid[], $2::uuid[]) AS n (broadcast_id, contact_id)
WHERE r.broadcast_id = n.broadcast_id AND r.contact_id = n.contact_id;

-- name: erase_links_of
-- Delete the unsubscribe links and opt-outs of addresses $2 of account $1.
WITH opt_out AS (DELETE FROM topic_opt_outs WHERE account_id = $1 AND address = ANY ($2::text[]))
DELETE FROM unsubscribe_links WHERE account_id = $1 AND address = ANY ($2::text[]);

-- name: erase_agent_sends_of
-- Delete the sends of agents to the canonical address $2 of account $1, decided or not.
DELETE FROM agent_sends WHERE account_id = $1 AND $2::text = ANY (recipients);

-- name: erase_verifications
-- Delete the verifications of destinations $2 of account $1.
DELETE FROM verifications WHERE account_id = $1 AND destination = ANY ($2::bytea[]);

-- name: erase_requests_of
-- Delete requests of account $1 whose paths match patterns $2 and expressions $3.
DELETE FROM api_requests WHERE account_id = $1 AND lower(path) LIKE ANY ($2::text[]) AND lower(path) ~ ANY ($3::text[]);

-- name: erase_keys_of
-- Delete idempotency keys of account $1 that match patterns $2. Keys join words freely (`welcome-ann@example.com`), so the
-- key of a longer address that ends alike goes too.
DELETE FROM idempotency WHERE account_id = $1 AND lower(key) LIKE ANY ($2::text[]);

-- name: erase_invites_of
-- Delete invitations of address $2 to account $1, and their system mail.
WITH gone AS (
    DELETE FROM invites WHERE account_id = $1 AND lower(email) = $2 RETURNING email
), mail AS (
    DELETE FROM system_mail WHERE kind = 'invite' AND address IN (SELECT email FROM gone)
)
SELECT email FROM gone;

-- name: make_key
-- Make key $2 for the digests of account $1, unless it has one.
INSERT INTO erasure_keys (account_id, key) VALUES ($1, $2) ON CONFLICT DO NOTHING;

-- name: digest_suppression
-- Replace the suppression of address $2 of account $1 by its digest.
WITH gone AS (
    DELETE FROM suppressions WHERE account_id = $1 AND address = $2 RETURNING account_id, address, reason, created_at
)
INSERT INTO erased_suppressions (account_id, digest, reason, created_at)
SELECT g.account_id, address_digest(k.key, g.address), g.reason, g.created_at
FROM gone g JOIN erasure_keys k ON k.account_id = g.account_id
ON CONFLICT (account_id, digest) DO UPDATE SET reason = excluded.reason;

-- name: clear_suppressions
-- Remove diagnostics that match expressions $2 from the suppressions of account $1.
UPDATE suppressions SET detail = NULL WHERE account_id = $1 AND lower(detail) ~ ANY ($2::text[]);
