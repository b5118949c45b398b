-- fragment: message_columns
-- Columns of `messages` in the order of MessageRow.
m.id, m.status, m.source, m.sender, m.reply_to, m.subject, m.stream, m.template, m.template_version, m.tags, m.metadata,
m.attachments, m.size_bytes, m.scheduled_at, m.delivered_at, m.resent_from

-- name: list_messages
-- List messages of account $1 with $2 <= id < $3, newest first, at most $4. Null disables each of the other filters:
-- status $5, sending domain $6, stream $7, tags $8 (JSON, all of them), metadata $9 (JSON, any of them), patterns $10
-- (any of them, in the subject, the sender or a recipient).
WITH page AS (
    SELECT :message_columns
    FROM messages m
    WHERE m.account_id = $1 AND m.id >= $2 AND m.id < $3
      AND ($5::text IS NULL OR m.status = $5)
      AND ($6::text IS NULL OR m.from_domain = $6)
      AND ($7::text IS NULL OR m.stream = $7)
      AND ($8::jsonb IS NULL OR m.tags @> $8)
      AND ($9::text[] IS NULL OR m.metadata @> ANY ($9::text[]::jsonb[]))
      AND ($10::text[] IS NULL OR m.subject ILIKE ANY($10) OR m.sender ILIKE ANY($10) OR EXISTS (
          SELECT 1 FROM (SELECT * FROM recipients WHERE message_id = m.id OFFSET 0) r
          WHERE r.account_id = $1 AND (r.address ILIKE ANY($10) OR r.name ILIKE ANY($10))))
    ORDER BY m.id DESC
    LIMIT $4
)
SELECT page.*, ARRAY(
    SELECT ROW(r.kind, r.address, r.name, r.status, r.attempts, r.last_response, r.next_attempt_at)
    FROM (SELECT * FROM recipients WHERE message_id = page.id OFFSET 0) r
    WHERE r.account_id = $1 ORDER BY r.n) AS recipients
FROM page ORDER BY page.id DESC;

-- name: list_messages_to
-- The same for messages to address $11 (case-insensitive), through the index on addresses. The inner ORDER BY makes a
-- page of an address with a million messages join only one page of them. The row comparison and the subqueries keep the
-- planner on this index, even if the address is very common.
WITH page AS (
    SELECT :message_columns
    FROM (SELECT message_id FROM recipients
          WHERE account_id = $1 AND lower(address) = (SELECT lower($11))
            AND (account_id, lower(address), message_id) >= ($1, (SELECT lower($11)), $2)
            AND (account_id, lower(address), message_id) < ($1, (SELECT lower($11)), $3)
          ORDER BY message_id DESC OFFSET 0) addressed
    CROSS JOIN LATERAL (SELECT * FROM messages WHERE id = addressed.message_id OFFSET 0) m
    WHERE m.account_id = $1
      AND ($5::text IS NULL OR m.status = $5)
      AND ($6::text IS NULL OR m.from_domain = $6)
      AND ($7::text IS NULL OR m.stream = $7)
      AND ($8::jsonb IS NULL OR m.tags @> $8)
      AND ($9::text[] IS NULL OR m.metadata @> ANY ($9::text[]::jsonb[]))
      AND ($10::text[] IS NULL OR m.subject ILIKE ANY($10) OR m.sender ILIKE ANY($10) OR EXISTS (
          SELECT 1 FROM (SELECT * FROM recipients WHERE message_id = m.id OFFSET 0) r
          WHERE r.account_id = $1 AND (r.address ILIKE ANY($10) OR r.name ILIKE ANY($10))))
    ORDER BY addressed.message_id DESC
    LIMIT $4
)
SELECT page.*, ARRAY(
    SELECT ROW(r.kind, r.address, r.name, r.status, r.attempts, r.last_response, r.next_attempt_at)
    FROM (SELECT * FROM recipients WHERE message_id = page.id OFFSET 0) r
    WHERE r.account_id = $1 ORDER BY r.n) AS recipients
FROM page ORDER BY page.id DESC;

-- name: read_message
-- Read message $2 of account $1 with its recipients and its waybill, by seq. Its events have ids >= $3, which prunes
-- older partitions.
SELECT :message_columns, ARRAY(
    SELECT ROW(r.kind, r.address, r.name, r.status, r.attempts, r.last_response, r.next_attempt_at)
    FROM (SELECT * FROM recipients WHERE message_id = m.id OFFSET 0) r
    WHERE r.account_id = $1 ORDER BY r.n) AS recipients, ARRAY(
    SELECT ROW(e.id, e.seq, e.type, e.occurred_at, e.payload)
    FROM (SELECT * FROM events WHERE message_id = m.id AND id >= $3 OFFSET 0) e
    WHERE e.account_id = $1 ORDER BY e.seq) AS waybill
FROM messages m WHERE m.account_id = $1 AND m.id = $2;

-- name: read_files
-- Read the attachments of message $2 of account $1.
SELECT attachments, size_bytes FROM messages WHERE account_id = $1 AND id = $2;

-- name: read_body
-- Read the composed content of message $2, which account $1 must own; never that of a verification, which is sealed.
SELECT b.mime FROM messages m JOIN message_bodies b ON b.message_id = m.id AND b.message_id = $2
WHERE m.account_id = $1 AND m.id = $2 AND m.source <> 'verification';
