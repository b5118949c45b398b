-- name: shard_rows
-- For each shard below $1: the owner's name (if it is a member), epoch, pending rows, earliest due time, pin, and the
-- owner's rate (messages per second) if measured within the last $2 seconds.
SELECT o.shard, m.name AS owner, o.epoch, coalesce(q.rows, 0) AS rows, q.oldest_due, p.target AS pinned, r.rate
FROM shard_owners o
LEFT JOIN shard_members m ON m.id = o.owner
LEFT JOIN (SELECT shard, count(*) AS rows, min(due_at) AS oldest_due FROM queue GROUP BY shard) q ON q.shard = o.shard
LEFT JOIN shard_pins p ON p.shard = o.shard
LEFT JOIN shard_rates r ON r.shard = o.shard AND r.measured_at > pg_catalog.clock_timestamp() - make_interval(secs => $2)
WHERE o.shard < $1 ORDER BY o.shard;

-- name: rehomings
-- Domains whose rows are being moved: number of shards to process, and rows moved so far.
SELECT domain, count(*) AS shards, sum(moved)::bigint AS moved FROM shard_rehomings GROUP BY domain ORDER BY domain;
