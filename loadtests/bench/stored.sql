-- name: store_history
-- Messages number $1 to $2 of a past from $3 to $4 (Unix milliseconds), evenly over that time and over the accounts $5,
-- each to one recipient: the message, its body, its recipient and its three events. $6 makes the ids differ. One in 50
-- bounced, one in ten was submitted over SMTP, one in 20 was made from a template, one in four has a tag.
WITH past AS MATERIALIZED (
    SELECT number, digest, at_ms, to_timestamp(at_ms / 1000.0) AS at,
           (lpad(to_hex(at_ms), 12, '0') || '7' || substr(digest, 1, 3) || '8' || substr(digest, 4, 15))::uuid AS id,
           ($5::uuid[])[1 + number % cardinality($5::uuid[])] AS account_id,
           CASE number / 2 % 50 WHEN 0 THEN 'bounced' ELSE 'delivered' END AS status
    FROM (
        SELECT number, md5($6::text || number) AS digest, $3::bigint + (hashint8(number)::bigint & 2147483647) * ($4 - $3) / 2147483647 AS at_ms
        FROM generate_series($1::bigint, $2::bigint) AS number
    ) AS one
), message AS (
    INSERT INTO messages (id, account_id, status, source, sender, from_domain, subject, stream, recipient_count, size_bytes,
                          delivered_at, template, template_version, tags, metadata)
    SELECT id, account_id, status, CASE number % 10 WHEN 1 THEN 'smtp' ELSE 'api' END, 'Shop <shop@past.test>', 'past.test',
           'Your order ' || number, 'transactional', 1, 2900,
           CASE status WHEN 'delivered' THEN at + interval '1 second' END,
           CASE number / 2 % 20 WHEN 2 THEN 'receipt' END, CASE number / 2 % 20 WHEN 2 THEN 1 END,
           CASE number % 4 WHEN 3 THEN '["order"]'::jsonb END, jsonb_build_object('order', number::text)
    FROM past
), body AS (
    INSERT INTO message_bodies (message_id, mime, smtputf8)
    SELECT id, convert_to('Subject: Your order ' || number || E'\r\n\r\nOn its way.\r\n', 'UTF8'), false FROM past
), recipient AS (
    INSERT INTO recipients (message_id, n, account_id, kind, address, status, attempts, last_response)
    SELECT id, 0, account_id, 'to', 'm' || number || '@d' || number % 1000 || '.test', status, 1,
           CASE status WHEN 'delivered' THEN '250 2.0.0 Ok: queued' ELSE '550 5.1.1 no such user' END
    FROM past
)
INSERT INTO events (id, account_id, seq, type, message_id, occurred_at, payload, hash)
SELECT (lpad(to_hex(at_ms + step.n), 12, '0') || '7' || substr(digest, 5, 3) || '8' || substr(digest, 8, 15))::uuid,
       account_id, number * 3 + step.n, coalesce(step.type, status), id, at,
       '{"type":"' || coalesce(step.type, status) || '","messageId":"msg_' || substr(digest, 1, 26) || '","detail":{"recipient":"m' || number
       || '@d' || number % 1000 || '.test","mx":"mx1.d' || number % 1000 || '.test",' || CASE coalesce(step.type, status)
       WHEN 'bounced' THEN '"code":550,"text":"5.1.1 no such user","scope":"recipient","class":"user_unknown","diagnostic":"550 5.1.1 no such user"}}'
       ELSE '"code":250,"text":"2.0.0 Ok: queued"}}' END,
       decode(digest || digest, 'hex')
FROM past CROSS JOIN (VALUES (0, 'accepted'), (1, 'attempted'), (2, NULL)) AS step (n, type);

-- name: vacuum
-- Vacuum now, so that autovacuum does not run during a measurement.
VACUUM (FREEZE, ANALYZE) messages, message_bodies, recipients, events, suppressions;

-- name: checkpoint
-- Write a checkpoint now, so that none runs during a measurement.
CHECKPOINT;
