-- name: replays
-- Messages already accepted under the accounts $1 and idempotency keys $2.
SELECT i.account_id, i.key, i.message_id, i.request_digest
FROM unnest($1::uuid[], $2::text[]) AS n (account_id, key)
JOIN idempotency i ON i.account_id = n.account_id AND i.key = n.key;

-- name: insert_accepted
-- Everything a batch of accepted messages consists of, the posts to webhooks, and the heads that counted them, whose new
-- versions it gives. Columns: messages $1-$17, bodies $18-$19, recipients $20-$26, queue $27-$36, schedules $37-$42, events
-- $43-$50, idempotency $51-$54, heads $55-$63.
-- Deliveries fall due by the database's clock, so long after the statement as $34 says.
-- Nothing is written, and nothing given, unless the heads and their accounts stand at the versions $64 and $65 (null: at
-- any, for who has locked the heads) and nobody else holds the heads, no pair of the accounts $66 and addresses $67 is suppressed, and none of the accounts $68 and
-- idempotency keys $69 was used. Whoever changes a head leaves another version of it, so what is asked here without a lock
-- holds until the head is locked here.
-- A column that is alike throughout may come as its one value (engine.store.queries.thinned).
WITH held AS MATERIALIZED (
    SELECT h.account_id
    FROM unnest($55::uuid[], $64::xid[], $65::xid[]) AS n (account_id, version, account_version)
    JOIN account_heads h ON h.account_id = n.account_id AND (n.version IS NULL OR h.xmin = n.version)
    JOIN accounts a ON a.id = h.account_id AND (n.account_version IS NULL OR a.xmin = n.account_version)
    ORDER BY h.account_id FOR NO KEY UPDATE OF h SKIP LOCKED
), fits AS MATERIALIZED (
    SELECT 1 WHERE (SELECT count(*) FROM held) = cardinality($55::uuid[])
      AND NOT EXISTS (SELECT 1 FROM unnest($66::uuid[], $67::text[]) AS n (account_id, address)
                      JOIN suppressions s
                        ON s.account_id = coalesce(n.account_id, ($66::uuid[])[1]) AND s.address = n.address)
      AND NOT EXISTS (SELECT 1 FROM unnest($68::uuid[], $69::text[]) AS n (account_id, key)
                      JOIN idempotency i ON i.account_id = n.account_id AND i.key = n.key)
), message AS (
    INSERT INTO messages (id, account_id, status, source, sender, from_domain, reply_to, subject, stream, tags, metadata,
                          attachments, recipient_count, size_bytes, template, template_version, scheduled_at)
    SELECT id, coalesce(account_id, ($2::uuid[])[1]), coalesce(status, ($3::text[])[1]), coalesce(source, ($4::text[])[1]),
           coalesce(sender, ($5::text[])[1]), coalesce(from_domain, ($6::text[])[1]), reply_to, subject,
           coalesce(stream, ($9::text[])[1]), tags::jsonb, metadata::jsonb, attachments::jsonb,
           coalesce(recipient_count, ($13::smallint[])[1]), size_bytes, template, template_version, scheduled_at
    FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[],
                $10::text[], $11::text[], $12::text[], $13::smallint[], $14::int[], $15::text[], $16::int[],
                $17::timestamptz[])
         AS n (id, account_id, status, source, sender, from_domain, reply_to, subject, stream, tags, metadata,
               attachments, recipient_count, size_bytes, template, template_version, scheduled_at), fits
), body AS (
    INSERT INTO message_bodies (message_id, mime, smtputf8)
    SELECT n.id, n.mime, coalesce(n.smtputf8, ($19::boolean[])[1])
    FROM unnest($1::uuid[], $18::bytea[], $19::boolean[]) AS n (id, mime, smtputf8), fits
), recipient AS (
    INSERT INTO recipients (message_id, n, account_id, kind, address, name, status)
    SELECT n.message_id, coalesce(n.n, ($21::smallint[])[1]), coalesce(n.account_id, ($22::uuid[])[1]),
           coalesce(n.kind, ($23::text[])[1]), n.address, n.name, coalesce(n.status, ($26::text[])[1])
    FROM unnest($20::uuid[], $21::smallint[], $22::uuid[], $23::text[], $24::text[], $25::text[], $26::text[])
         AS n (message_id, n, account_id, kind, address, name, status), fits
), pending AS (
    INSERT INTO queue (message_id, domain, shard, account_id, from_domain, recipients, total, due_at, deliver_by, min_tls,
                       priority)
    SELECT message_id, coalesce(domain, ($28::text[])[1]), coalesce(shard, ($29::int[])[1]),
           coalesce(account_id, ($30::uuid[])[1]), coalesce(from_domain, ($31::text[])[1]), recipients::jsonb,
           coalesce(total, ($33::smallint[])[1]), clock_timestamp() + coalesce(wait, ($34::interval[])[1]), deliver_by, min_tls,
           mail_priority(coalesce(m.source, ($4::text[])[1]), coalesce(m.stream, ($9::text[])[1]))
    FROM unnest($27::uuid[], $28::text[], $29::int[], $30::uuid[], $31::text[], $32::text[], $33::smallint[],
                $34::interval[], $35::timestamptz[], $36::text[])
         AS n (message_id, domain, shard, account_id, from_domain, recipients, total, wait, deliver_by, min_tls)
    JOIN unnest($1::uuid[], $4::text[], $9::text[]) AS m (id, source, stream) ON m.id = n.message_id, fits
), later AS (
    INSERT INTO schedules (message_id, account_id, due_at, look_at, deliver_by, min_tls)
    SELECT n.* FROM unnest($37::uuid[], $38::uuid[], $39::timestamptz[], $40::timestamptz[], $41::timestamptz[], $42::text[])
                    AS n, fits
), event AS (
    INSERT INTO events (id, account_id, seq, type, message_id, occurred_at, payload, hash)
    SELECT n.id, coalesce(n.account_id, ($44::uuid[])[1]), n.seq, coalesce(n.type, ($46::text[])[1]), n.message_id,
           coalesce(n.occurred_at, ($48::timestamptz[])[1]), n.payload, n.hash
    FROM unnest($43::uuid[], $44::uuid[], $45::bigint[], $46::text[], $47::uuid[], $48::timestamptz[], $49::text[],
                $50::bytea[]) AS n (id, account_id, seq, type, message_id, occurred_at, payload, hash), fits
    RETURNING id, account_id, seq, type
), posted AS (
    INSERT INTO webhook_queue (webhook_id, event_id, account_id, seq, due_at)
    SELECT w.id, e.id, e.account_id, e.seq, now() FROM event e
    JOIN webhooks w ON w.account_id = e.account_id AND w.status = 'active' AND webhook_wants(w.event_types, e.type)
), once AS (
    INSERT INTO idempotency (account_id, key, message_id, request_digest)
    SELECT n.* FROM unnest($51::uuid[], $52::text[], $53::uuid[], $54::bytea[]) AS n, fits
)
UPDATE account_heads h
SET seq = n.seq, hash = n.hash, rung = n.rung, day = n.day, sent_today = n.sent_today,
    month = n.month, sent_this_month = n.sent_this_month, scheduled = n.scheduled
FROM unnest($55::uuid[], $56::bigint[], $57::bytea[], $58::smallint[], $59::date[], $60::int[], $61::date[], $62::int[],
            $63::int[])
     AS n (account_id, seq, hash, rung, day, sent_today, month, sent_this_month, scheduled), fits
WHERE h.account_id = n.account_id
RETURNING h.account_id, h.xmin AS version;

-- name: stored_message
-- Whether message $1 is stored.
SELECT id FROM messages WHERE id = $1;
