-- name: replays
-- Messages already accepted under the accounts $1 and idempotency keys $2.
SELECT i.account_id, i.key, i.message_id, i.request_digest
FROM unnest($1::uuid[], $2::text[]) AS n (account_id, key)
JOIN idempotency i ON i.account_id = n.account_id AND i.key = n.key;

-- name: day_counts
-- What became of the mail of accounts $1 on day $2.
SELECT account_id, bounced, complained, delivered + bounced + failed AS settled FROM account_days WHERE account_id = ANY($1::uuid[]) AND day = $2;

-- name: lease_ceiling
-- Lease from day $1 at least $2 (need) and up to $3 (chunk) messages under the ceiling $4. Chunks shrink as the
-- ceiling comes near, so that little of it lies unused with other processes when it is reached.
WITH day AS (
    INSERT INTO platform_days AS p (day) VALUES ($1) ON CONFLICT (day) DO UPDATE SET leased = p.leased RETURNING leased
), take AS (
    SELECT greatest(0, least($4::bigint - leased, greatest($2::bigint, least($3::bigint, ($4::bigint - leased) / 16)))) AS n
    FROM day
)
SELECT n AS granted FROM take;

-- name: add_leased
-- Day $1: $2 more messages are leased (negative: given back).
UPDATE platform_days SET leased = leased + $2 WHERE day = $1;

-- name: insert_accepted
-- Everything a batch of accepted messages consists of, the posts to webhooks, and the heads that counted them. Columns: messages
-- $1-$14, bodies $15-$16, recipients $17-$22, queue $23-$30, events $31-$38, idempotency $39-$42, heads $43-$50.
WITH message AS (
    INSERT INTO messages (id, account_id, status, source, sender, from_domain, reply_to, subject, stream, tags, metadata,
                          attachments, recipient_count, size_bytes)
    SELECT id, account_id, status, source, sender, from_domain, reply_to, subject, stream, tags::jsonb, metadata::jsonb,
           attachments::jsonb, recipient_count, size_bytes
    FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[],
                $10::text[], $11::text[], $12::text[], $13::smallint[], $14::int[])
         AS n (id, account_id, status, source, sender, from_domain, reply_to, subject, stream, tags, metadata,
               attachments, recipient_count, size_bytes)
), body AS (
    INSERT INTO message_bodies (message_id, mime, smtputf8)
    SELECT * FROM unnest($1::uuid[], $15::bytea[], $16::boolean[])
), recipient AS (
    INSERT INTO recipients (message_id, n, account_id, kind, address, name, status)
    SELECT *, 'queued' FROM unnest($17::uuid[], $18::smallint[], $19::uuid[], $20::text[], $21::text[], $22::text[])
), pending AS (
    INSERT INTO queue (message_id, domain, shard, account_id, from_domain, recipients, total, due_at)
    SELECT message_id, domain, shard, account_id, from_domain, recipients::jsonb, total, due_at
    FROM unnest($23::uuid[], $24::text[], $25::int[], $26::uuid[], $27::text[], $28::text[], $29::smallint[],
                $30::timestamptz[])
         AS n (message_id, domain, shard, account_id, from_domain, recipients, total, due_at)
), event AS (
    INSERT INTO events (id, account_id, seq, type, message_id, occurred_at, payload, hash)
    SELECT * FROM unnest($31::uuid[], $32::uuid[], $33::bigint[], $34::text[], $35::uuid[], $36::timestamptz[],
                         $37::text[], $38::bytea[])
    RETURNING id, account_id, type
), posted AS (
    INSERT INTO webhook_queue (webhook_id, event_id, account_id, due_at)
    SELECT w.id, e.id, e.account_id, now() FROM event e
    JOIN webhooks w ON w.account_id = e.account_id AND w.status = 'active' AND webhook_wants(w.event_types, e.type)
), once AS (
    INSERT INTO idempotency (account_id, key, message_id, request_digest)
    SELECT * FROM unnest($39::uuid[], $40::text[], $41::uuid[], $42::bytea[])
)
UPDATE account_heads h
SET seq = n.seq, hash = n.hash, rung = n.rung, day = n.day, sent_today = n.sent_today,
    month = n.month, sent_this_month = n.sent_this_month
FROM unnest($43::uuid[], $44::bigint[], $45::bytea[], $46::smallint[], $47::date[], $48::int[], $49::date[], $50::int[])
     AS n (account_id, seq, hash, rung, day, sent_today, month, sent_this_month)
WHERE h.account_id = n.account_id;

-- name: stored_message
-- Whether message $1 is stored.
SELECT id FROM messages WHERE id = $1;
