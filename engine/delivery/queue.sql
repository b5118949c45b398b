-- name: load_rows
-- Return the queue rows with messages $1 and domains $2, with their bodies; $3 and $4 bound the ids for partition
-- pruning. OFFSET 0 makes the planner look up each row and body by its id: joined, it would read all bodies between the
-- bounds, and a plan made for an empty queue would read all of a full one. `suspect` is true if an address is
-- suppressed for any reason or is not ASCII (only then does `canonical` differ from lower case).
SELECT q.message_id, q.domain, q.shard, q.account_id, q.from_domain, q.recipients::text, q.total, q.due_at, q.attempts,
       q.signature, q.waiting,
       CASE WHEN octet_length(b.mime) <= 262144 THEN b.mime END AS mime, b.smtputf8, q.accepted_at AS released_at, q.deliver_by,
       q.min_tls, q.priority, x.suspect, q.waits, q.forgets,
       CASE WHEN q.forgets THEN (SELECT c.sealed_key FROM content_keys c WHERE c.message_id = q.message_id) END AS content_key,
       q.traceparent
FROM unnest($1::uuid[], $2::text[]) AS n (message_id, domain)
CROSS JOIN LATERAL (
    SELECT k.message_id, k.domain, k.shard, k.account_id, k.from_domain, k.recipients, k.total, k.due_at, k.attempts,
           k.signature, k.waiting, k.accepted_at, k.deliver_by, k.min_tls, k.priority, k.waits,
           k.forgets, k.traceparent
    FROM queue k
    WHERE k.message_id = n.message_id AND k.domain = n.domain AND k.account_id NOT IN (SELECT v.account_id FROM account_moves v)
    OFFSET 0
) AS q
CROSS JOIN LATERAL (
    SELECT m.mime, m.smtputf8 FROM message_bodies m
    WHERE m.message_id = q.message_id AND m.message_id BETWEEN $3 AND $4 OFFSET 0
) AS b
CROSS JOIN LATERAL (
    SELECT EXISTS (
        SELECT FROM jsonb_array_elements(q.recipients) AS r (pair)
        WHERE octet_length(r.pair ->> 1) > char_length(r.pair ->> 1) OR EXISTS (
            SELECT FROM suppressions s
            WHERE s.account_id = q.account_id AND s.address = lower((r.pair ->> 1) COLLATE "C") COLLATE "default" OFFSET 0
        )
    ) AS suspect OFFSET 0
) AS x;

-- name: load_light
-- Return the queue rows with messages $1 and domains $2, without their bodies.
SELECT q.message_id, q.domain, q.shard, q.account_id, q.from_domain, q.recipients::text, q.total, q.due_at, q.attempts,
       q.signature, q.waiting, NULL::bytea AS mime, false AS smtputf8, q.accepted_at AS released_at, q.deliver_by,
       q.min_tls, q.priority, true AS suspect, q.waits, q.forgets, NULL::bytea AS content_key, q.traceparent
FROM unnest($1::uuid[], $2::text[]) AS n (message_id, domain)
JOIN queue q ON q.message_id = n.message_id AND q.domain = n.domain
    AND q.account_id NOT IN (SELECT v.account_id FROM account_moves v);

-- name: load_hinted
-- Return the queue rows of messages $1 in shards $2, with their bodies, as in load_rows; $3 and $4 bound the ids for
-- partition pruning.
SELECT q.message_id, q.domain, q.shard, q.account_id, q.from_domain, q.recipients::text, q.total, q.due_at, q.attempts,
       q.signature, q.waiting,
       CASE WHEN octet_length(b.mime) <= 262144 THEN b.mime END AS mime, b.smtputf8, q.accepted_at AS released_at, q.deliver_by,
       q.min_tls, q.priority, x.suspect, q.waits, q.forgets,
       CASE WHEN q.forgets THEN (SELECT c.sealed_key FROM content_keys c WHERE c.message_id = q.message_id) END AS content_key,
       q.traceparent
FROM unnest($1::uuid[]) AS n (message_id)
CROSS JOIN LATERAL (
    SELECT k.message_id, k.domain, k.shard, k.account_id, k.from_domain, k.recipients, k.total, k.due_at, k.attempts,
           k.signature, k.waiting, k.accepted_at, k.deliver_by, k.min_tls, k.priority, k.waits,
           k.forgets, k.traceparent
    FROM queue k
    WHERE k.message_id = n.message_id AND k.account_id NOT IN (SELECT v.account_id FROM account_moves v) OFFSET 0
) AS q
CROSS JOIN LATERAL (
    SELECT m.mime, m.smtputf8 FROM message_bodies m
    WHERE m.message_id = q.message_id AND m.message_id BETWEEN $3 AND $4 OFFSET 0
) AS b
CROSS JOIN LATERAL (
    SELECT EXISTS (
        SELECT FROM jsonb_array_elements(q.recipients) AS r (pair)
        WHERE octet_length(r.pair ->> 1) > char_length(r.pair ->> 1) OR EXISTS (
            SELECT FROM suppressions s
            WHERE s.account_id = q.account_id AND s.address = lower((r.pair ->> 1) COLLATE "C") COLLATE "default" OFFSET 0
        )
    ) AS suspect OFFSET 0
) AS x
WHERE q.shard = ANY($2::int[]);

-- name: load_body
-- Return the body of message $1.
SELECT mime FROM message_bodies WHERE message_id = $1;

-- name: due_rows
-- Return rows of shards $1 that are due by the database's clock, at most $2 per shard, without messages $3. Rows that
-- were never tried or postponed are returned up to $4 before they fall due. The excluded messages are a hashed
-- subquery, because a generic plan compares every row with every member of an array.
WITH held AS MATERIALIZED (SELECT unnest($3::uuid[]) AS id)
SELECT r.message_id, r.domain, r.shard, r.priority
FROM unnest($1::int[]) AS s (shard)
CROSS JOIN LATERAL (
    SELECT q.message_id, q.domain, q.shard, q.priority FROM queue q
    WHERE q.shard = s.shard AND q.due_at <= (SELECT clock_timestamp()) + $4::interval
      AND (q.due_at <= (SELECT clock_timestamp()) OR q.attempts = 0 AND q.waiting IS NULL)
      AND q.message_id NOT IN (SELECT id FROM held) AND q.account_id NOT IN (SELECT v.account_id FROM account_moves v)
    ORDER BY q.due_at LIMIT $2
) AS r;

-- name: outline_hinted
-- Return owner and priority of the queue rows of messages $1 in shards $2. OFFSET 0 as in load_rows: without it the
-- planner scans all rows of the shards once for each message.
SELECT q.message_id, q.shard, q.account_id, q.priority, q.domain
FROM unnest($1::uuid[]) AS n (message_id)
CROSS JOIN LATERAL (
    SELECT k.message_id, k.shard, k.account_id, k.priority, k.domain FROM queue k WHERE k.message_id = n.message_id OFFSET 0
) AS q
WHERE q.shard = ANY($2::int[]);

-- name: due_fairly
-- Walk through the shards $1 account by account, starting after priorities $2 and accounts $3: at most $4 holders
-- (priority and account) per shard, and of each at most $5 rows due by the database's clock, without messages $6.
-- Holders are found by skipping through the index.
WITH RECURSIVE held AS MATERIALIZED (
    SELECT unnest($6::uuid[]) AS id
), walk AS (
    SELECT s.shard, s.priority, s.account_id, 0 AS step
    FROM unnest($1::int[], $2::smallint[], $3::uuid[]) AS s (shard, priority, account_id)
    UNION ALL
    SELECT w.shard, n.priority, n.account_id, w.step + 1
    FROM walk w CROSS JOIN LATERAL (
        SELECT q.priority, q.account_id FROM queue q
        WHERE q.shard = w.shard AND (q.priority, q.account_id) > (w.priority, w.account_id)
        ORDER BY q.priority, q.account_id LIMIT 1
    ) n
    WHERE w.step < $4
)
SELECT r.message_id, r.domain, w.shard, w.priority, w.account_id
FROM walk w LEFT JOIN LATERAL (
    SELECT q.message_id, q.domain FROM queue q
    WHERE q.shard = w.shard AND q.priority = w.priority AND q.account_id = w.account_id
      AND q.due_at <= (SELECT clock_timestamp()) AND q.message_id NOT IN (SELECT id FROM held)
      AND q.account_id NOT IN (SELECT v.account_id FROM account_moves v)
    ORDER BY q.due_at LIMIT $5
) r ON true
WHERE w.step > 0
ORDER BY w.step;

-- name: postpone_rows
-- Set the due time of rows with messages $1 and domains $2 to $4 from now, by the database's clock, with reason $5; at
-- most to the end of the message's time, when the delivery ends. $3 are their waiting times by cause (null: unchanged).
UPDATE queue q SET due_at = least(clock_timestamp() + $4::interval, q.deliver_by), waiting = coalesce($5, q.waiting),
    waits = coalesce(n.waits, q.waits)
FROM unnest($1::uuid[], $2::text[], $3::text[]) AS n (message_id, domain, waits)
WHERE q.message_id = n.message_id AND q.domain = n.domain;

-- name: show_next
-- Set the time of the next attempt of recipients $1 (messages) and $2 (places) to $3 (null: unknown); $4 and $5 bound
-- the ids for partition pruning, on both sides as in update_recipients.
UPDATE recipients r SET next_attempt_at = n.next_attempt_at
FROM unnest($1::uuid[], $2::smallint[], $3::timestamptz[]) AS n (message_id, n, next_attempt_at)
WHERE r.message_id = n.message_id AND r.n = n.n AND r.status = 'sending'
  AND r.message_id BETWEEN $4 AND $5 AND n.message_id BETWEEN $4 AND $5;

-- name: depths
-- Count the rows of each shard and return their oldest due time.
SELECT shard, count(*) AS rows, min(due_at) AS oldest_due FROM queue GROUP BY shard;

-- name: bury_row
-- Postpone the row of message $1 and domain $2 by $3 from now, by the database's clock, with reason $4, and count an
-- attempt.
UPDATE queue SET due_at = clock_timestamp() + $3::interval, waiting = $4, attempts = attempts + 1 WHERE message_id = $1 AND domain = $2;

-- name: oldest_due
-- Return the earliest due time over the shards 0 to $1 - 1.
SELECT min(q.due_at) AS oldest_due FROM generate_series(0, $1::int - 1) AS s (shard)
CROSS JOIN LATERAL (SELECT due_at FROM queue WHERE queue.shard = s.shard ORDER BY due_at LIMIT 1) AS q;
