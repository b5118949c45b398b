-- name: any_rehoming
-- Return whether rows of any domain have to move to other shards.
SELECT EXISTS (SELECT FROM shard_rehomings) AS found;

-- name: rehomings_here
-- The domains with rows to move in the shards $1, with their present parts, and whether the change is older than $2
-- seconds, so that every process has heard of it.
SELECT r.shard, r.domain, coalesce(s.parts, 1)::int AS parts, r.began_at,
       r.began_at < pg_catalog.clock_timestamp() - make_interval(secs => $2) AS over
FROM shard_rehomings r LEFT JOIN shard_splits s ON s.domain = r.domain
WHERE r.shard = ANY($1::int[]) ORDER BY r.began_at, r.shard, r.domain;

-- name: rows_there
-- At most $5 rows of domain $2 in shard $1 behind due time $3 and message $4, in that order.
SELECT message_id, due_at FROM queue
WHERE shard = $1 AND domain = $2 AND (due_at, message_id) > ($3, $4::uuid) ORDER BY due_at, message_id LIMIT $5;

-- name: rehome_rows
-- Move messages $1 of domain $2 from shard $3 to shards $4, provided that member $5 owns shard $3: its lease and its
-- ownership are held until the transaction ends. Rows that another transaction is changing stay.
WITH fence AS MATERIALIZED (
    SELECT o.shard FROM shard_owners o JOIN shard_members m ON m.id = o.owner
    WHERE o.shard = $3 AND m.id = $5 FOR SHARE OF o FOR KEY SHARE OF m
), free AS MATERIALIZED (
    SELECT q.message_id FROM queue q
    WHERE q.message_id = ANY($1::uuid[]) AND q.domain = $2 AND q.shard = $3 FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE queue q SET shard = n.shard
FROM fence, free, unnest($1::uuid[], $4::int[]) AS n (message_id, shard)
WHERE q.message_id = free.message_id AND q.domain = $2 AND n.message_id = free.message_id AND q.shard = fence.shard
RETURNING q.message_id;

-- name: count_rehomed
-- Count $3 more rows of domain $2 that have left shard $1.
UPDATE shard_rehomings SET moved = moved + $3 WHERE shard = $1 AND domain = $2;

-- name: end_rehoming
-- End the moves of domain $2 in shard $1, unless its parts have changed since $3.
DELETE FROM shard_rehomings WHERE shard = $1 AND domain = $2 AND began_at = $3 RETURNING shard;
