-- name: still_owed
-- Which of the queue rows (messages $1, domains $2, attempts made $3) still stand as the attempt found them,
-- provided that member $4 is not fenced: its row is held until the transaction ends.
WITH fence AS MATERIALIZED (SELECT 1 FROM shard_members WHERE id = $4 FOR KEY SHARE)
SELECT q.message_id, q.domain
FROM fence, unnest($1::uuid[], $2::text[], $3::smallint[]) AS n (message_id, domain, attempts)
JOIN queue q ON q.message_id = n.message_id AND q.domain = n.domain AND q.attempts = n.attempts;

-- name: is_member
-- Whether member $1 holds its leases.
SELECT id FROM shard_members WHERE id = $1;

-- name: update_recipients
-- Recipients $1 (messages) and $2 (places) after an attempt: statuses $3, last responses $4, next attempts $5,
-- attempts to add $6; $7 and $8 bound the ids for partition pruning. Stated of both sides: of the table alone, the
-- planner takes the bounds for a narrow range and reads everything between them, which is the whole backlog.
UPDATE recipients r
SET status = n.status, last_response = n.last_response, next_attempt_at = n.next_attempt_at, attempts = r.attempts + n.made
FROM unnest($1::uuid[], $2::smallint[], $3::text[], $4::text[], $5::timestamptz[], $6::smallint[])
     AS n (message_id, n, status, last_response, next_attempt_at, made)
WHERE r.message_id = n.message_id AND r.n = n.n AND r.message_id BETWEEN $7 AND $8 AND n.message_id BETWEEN $7 AND $8;

-- name: recipient_statuses
-- Statuses of all recipients of messages $1, whose ids lie between $2 and $3.
SELECT message_id, array_agg(status) AS statuses FROM recipients
WHERE message_id = ANY($1::uuid[]) AND message_id BETWEEN $2 AND $3 GROUP BY message_id;

-- name: settle
-- The rest of a batch of outcomes, in one statement. Messages $1 with status $2, delivered at $3, provided that
-- their status is one of $4 (comma-separated); finished queue rows $5, $6; rows to retry $7, $8 with recipients $9,
-- due after $10 by the database's clock, signature $11; account days $12-$17; events $18-$25; heads $26-$28; id bounds $29, $30;
-- recipients $31-$36, as in update_recipients (empty where that has run).
WITH recipient AS (
    UPDATE recipients r
    SET status = n.status, last_response = n.last_response, next_attempt_at = n.next_attempt_at,
        attempts = r.attempts + n.made
    FROM unnest($31::uuid[], $32::smallint[], $33::text[], $34::text[], $35::timestamptz[], $36::smallint[])
         AS n (message_id, n, status, last_response, next_attempt_at, made)
    WHERE r.message_id = n.message_id AND r.n = n.n AND r.message_id BETWEEN $29 AND $30
      AND n.message_id BETWEEN $29 AND $30
), message AS (
    UPDATE messages m SET status = n.status, delivered_at = coalesce(n.delivered_at, m.delivered_at)
    FROM unnest($1::uuid[], $2::text[], $3::timestamptz[], $4::text[]) AS n (id, status, delivered_at, moves)
    WHERE m.id = n.id AND m.status = ANY(string_to_array(n.moves, ',')) AND m.id BETWEEN $29 AND $30
      AND n.id BETWEEN $29 AND $30
), gone AS (
    DELETE FROM queue q USING unnest($5::uuid[], $6::text[]) AS n (message_id, domain)
    WHERE q.message_id = n.message_id AND q.domain = n.domain
), later AS (
    UPDATE queue q SET recipients = n.recipients::jsonb, due_at = clock_timestamp() + n.wait, attempts = q.attempts + 1,
        signature = coalesce(n.signature, q.signature), waiting = NULL, held_by = NULL
    FROM unnest($7::uuid[], $8::text[], $9::text[], $10::interval[], $11::bytea[])
         AS n (message_id, domain, recipients, wait, signature)
    WHERE q.message_id = n.message_id AND q.domain = n.domain
), day AS (
    INSERT INTO account_days AS d (account_id, day, delivered, bounced, complained, failed)
    SELECT * FROM unnest($12::uuid[], $13::date[], $14::int[], $15::int[], $16::int[], $17::int[])
    ON CONFLICT (account_id, day) DO UPDATE
    SET delivered = d.delivered + excluded.delivered, bounced = d.bounced + excluded.bounced,
        complained = d.complained + excluded.complained, failed = d.failed + excluded.failed
), event AS (
    INSERT INTO events (id, account_id, seq, type, message_id, occurred_at, payload, hash)
    SELECT * FROM unnest($18::uuid[], $19::uuid[], $20::bigint[], $21::text[], $22::uuid[], $23::timestamptz[],
                         $24::text[], $25::bytea[])
    RETURNING id, account_id, seq, type
), posted AS (
    INSERT INTO webhook_queue (webhook_id, event_id, account_id, seq, due_at)
    SELECT w.id, e.id, e.account_id, e.seq, now() FROM event e
    JOIN webhooks w ON w.account_id = e.account_id AND w.status = 'active' AND webhook_wants(w.event_types, e.type)
)
UPDATE account_heads h SET seq = n.seq, hash = n.hash
FROM unnest($26::uuid[], $27::bigint[], $28::bytea[]) AS n (account_id, seq, hash)
WHERE h.account_id = n.account_id;

-- name: settle_whole
-- A batch of outcomes that end or put off whole messages, all at once or not at all: 'done', 'partly' or 'fenced'.
-- Member $1, id bounds $2, $3; accounts $4 with numbers of events $5; queue rows $6-$8, whether each stays $9, what
-- becomes of its message $10-$12 as in settle; rows to retry $13-$17; account days $18-$23; events $24-$26 with what
-- is hashed of them $27; recipients $28-$33.
SELECT settle_whole($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22,
                    $23, $24, $25, $26, $27, $28, $29, $30, $31, $32, $33) AS said;
