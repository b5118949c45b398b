-- name: facts_of
-- What the events of message $1 tell of it, with its first recipient.
SELECT m.source, m.from_domain, m.attachments::text AS attachments, r.address
FROM messages m JOIN recipients r ON r.message_id = m.id AND r.n = 0
WHERE m.id = $1 AND r.message_id = $1;

-- name: move_schedule
-- Message $1 goes out at $2. Where the line $3 stands in its header, which is our Date for the time before, the line $4
-- of the same length takes its place.
WITH message AS (
    UPDATE messages SET scheduled_at = $2 WHERE id = $1
), body AS (
    UPDATE message_bodies SET mime = overlay(mime PLACING $4::bytea FROM position($3::bytea IN mime))
    WHERE message_id = $1 AND position($3::bytea IN mime) BETWEEN 1 AND position('\x0d0a0d0a'::bytea IN mime)
)
UPDATE schedules SET due_at = $2, look_at = $2 WHERE message_id = $1;
