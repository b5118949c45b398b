-- name: any_rehoming
-- Whether rows of any domain are to be brought elsewhere.
SELECT EXISTS (SELECT FROM shard_rehomings) AS found;

-- name: rehomings_here
-- What there is to do in the shards $1: domains and their parts of this moment, and whether the last process that may
-- have known other parts has heard of the change $2 seconds ago.
SELECT r.shard, r.domain, coalesce(s.parts, 1)::int AS parts, r.began_at,
       r.began_at < clock_timestamp() - make_interval(secs => $2) AS over
FROM shard_rehomings r LEFT JOIN shard_splits s ON s.domain = r.domain
WHERE r.shard = ANY($1::int[]) ORDER BY r.began_at, r.shard, r.domain;

-- name: rows_there
-- At most $5 rows of domain $2 in shard $1 behind due time $3 and message $4, in that order.
SELECT message_id, due_at FROM queue
WHERE shard = $1 AND domain = $2 AND (due_at, message_id) > ($3, $4::uuid) ORDER BY due_at, message_id LIMIT $5;

-- name: rehome_rows
-- Messages $1 of domain $2 go from shard $3 to shards $4, provided that member $5 owns shard $3: its lease and its
-- ownership are held until the transaction ends. Rows that somebody else is changing stay.
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
-- $3 rows more of domain $2 have left shard $1.
UPDATE shard_rehomings SET moved = moved + $3 WHERE shard = $1 AND domain = $2;

-- name: end_rehoming
-- Nothing of domain $2 in shard $1 belongs elsewhere, unless its parts have changed since $3.
DELETE FROM shard_rehomings WHERE shard = $1 AND domain = $2 AND began_at = $3 RETURNING shard;
