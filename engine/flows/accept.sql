-- name: replays
-- Messages already accepted under the accounts $1 and idempotency keys $2.
SELECT i.account_id, i.key, i.message_id, i.request_digest
FROM unnest($1::uuid[], $2::text[]) AS n (account_id, key)
JOIN idempotency i ON i.account_id = n.account_id AND i.key = n.key;

-- name: insert_accepted
-- Everything a batch of accepted messages consists of, the posts to webhooks, and the heads that counted them. Columns: messages
-- $1-$17, bodies $18-$19, recipients $20-$26, queue $27-$35, schedules $36-$40, events $41-$48, idempotency $49-$52, heads
-- $53-$61.
WITH message AS (
    INSERT INTO messages (id, account_id, status, source, sender, from_domain, reply_to, subject, stream, tags, metadata,
                          attachments, recipient_count, size_bytes, template, template_version, scheduled_at)
    SELECT id, account_id, status, source, sender, from_domain, reply_to, subject, stream, tags::jsonb, metadata::jsonb,
           attachments::jsonb, recipient_count, size_bytes, template, template_version, scheduled_at
    FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[],
                $10::text[], $11::text[], $12::text[], $13::smallint[], $14::int[], $15::text[], $16::int[],
                $17::timestamptz[])
         AS n (id, account_id, status, source, sender, from_domain, reply_to, subject, stream, tags, metadata,
               attachments, recipient_count, size_bytes, template, template_version, scheduled_at)
), body AS (
    INSERT INTO message_bodies (message_id, mime, smtputf8)
    SELECT * FROM unnest($1::uuid[], $18::bytea[], $19::boolean[])
), recipient AS (
    INSERT INTO recipients (message_id, n, account_id, kind, address, name, status)
    SELECT * FROM unnest($20::uuid[], $21::smallint[], $22::uuid[], $23::text[], $24::text[], $25::text[], $26::text[])
), pending AS (
    INSERT INTO queue (message_id, domain, shard, account_id, from_domain, recipients, total, due_at, deliver_by)
    SELECT message_id, domain, shard, account_id, from_domain, recipients::jsonb, total, due_at, deliver_by
    FROM unnest($27::uuid[], $28::text[], $29::int[], $30::uuid[], $31::text[], $32::text[], $33::smallint[],
                $34::timestamptz[], $35::timestamptz[])
         AS n (message_id, domain, shard, account_id, from_domain, recipients, total, due_at, deliver_by)
), later AS (
    INSERT INTO schedules (message_id, account_id, due_at, look_at, deliver_by)
    SELECT * FROM unnest($36::uuid[], $37::uuid[], $38::timestamptz[], $39::timestamptz[], $40::timestamptz[])
), event AS (
    INSERT INTO events (id, account_id, seq, type, message_id, occurred_at, payload, hash)
    SELECT * FROM unnest($41::uuid[], $42::uuid[], $43::bigint[], $44::text[], $45::uuid[], $46::timestamptz[],
                         $47::text[], $48::bytea[])
    RETURNING id, account_id, seq, type
), posted AS (
    INSERT INTO webhook_queue (webhook_id, event_id, account_id, seq, due_at)
    SELECT w.id, e.id, e.account_id, e.seq, now() FROM event e
    JOIN webhooks w ON w.account_id = e.account_id AND w.status = 'active' AND webhook_wants(w.event_types, e.type)
), once AS (
    INSERT INTO idempotency (account_id, key, message_id, request_digest)
    SELECT * FROM unnest($49::uuid[], $50::text[], $51::uuid[], $52::bytea[])
)
UPDATE account_heads h
SET seq = n.seq, hash = n.hash, rung = n.rung, day = n.day, sent_today = n.sent_today,
    month = n.month, sent_this_month = n.sent_this_month, scheduled = n.scheduled
FROM unnest($53::uuid[], $54::bigint[], $55::bytea[], $56::smallint[], $57::date[], $58::int[], $59::date[], $60::int[],
            $61::int[])
     AS n (account_id, seq, hash, rung, day, sent_today, month, sent_this_month, scheduled)
WHERE h.account_id = n.account_id;

-- name: stored_message
-- Whether message $1 is stored.
SELECT id FROM messages WHERE id = $1;
