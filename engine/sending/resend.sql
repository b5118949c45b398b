-- name: sent_messages
-- Read messages $2 of account $1 without their content.
SELECT m.id, m.status, m.source, m.sender, m.from_domain, m.reply_to, m.subject, m.stream, m.template, m.template_version,
       m.tags, m.metadata, m.attachments, m.size_bytes,
       m.content_hours, ARRAY(
    SELECT ROW(r.kind, r.address, r.name)
    FROM (SELECT * FROM recipients WHERE message_id = m.id OFFSET 0) r
    WHERE r.account_id = $1 ORDER BY r.n) AS recipients
FROM messages m WHERE m.account_id = $1 AND m.id = ANY ($2::uuid[]);

-- name: sent_content
-- Read the content of message $1, whose owner the caller has checked, and its key if it has one.
SELECT b.mime, b.smtputf8, k.sealed_key FROM message_bodies b LEFT JOIN content_keys k ON k.message_id = b.message_id
WHERE b.message_id = $1;
