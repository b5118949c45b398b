-- name: facts_of
-- Return the fields of message $1 that its events show, with its first recipient.
SELECT m.source, m.from_domain, m.stream, m.attachments::text AS attachments, m.traceparent, r.address
FROM messages m JOIN recipients r ON r.message_id = m.id AND r.n = 0
WHERE m.id = $1 AND r.message_id = $1;

-- name: move_schedule
-- Schedule message $1 for $2, and replace the line $3 in its header (the Date for the former time) by the line $4 of
-- the same length, unless the content is encrypted.
WITH message AS (
    UPDATE messages SET scheduled_at = $2 WHERE id = $1
), body AS (
    UPDATE message_bodies SET mime = overlay(mime PLACING $4::bytea FROM position($3::bytea IN mime))
    WHERE message_id = $1 AND position($3::bytea IN mime) BETWEEN 1 AND position('\x0d0a0d0a'::bytea IN mime)
)
UPDATE schedules SET due_at = $2, look_at = $2 WHERE message_id = $1;

-- name: sealed_content
-- Return the content of message $1 and its key if it has one.
SELECT b.mime, k.sealed_key FROM content_keys k JOIN message_bodies b ON b.message_id = k.message_id
WHERE k.message_id = $1 AND b.message_id = $1;

-- name: seal_again
-- Replace the encrypted content of message $1 by $2, and its key by $3.
WITH key AS (UPDATE content_keys SET sealed_key = $3 WHERE message_id = $1)
UPDATE message_bodies SET mime = $2 WHERE message_id = $1;
