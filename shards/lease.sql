-- name: join_members
-- Member $1 named $2 with weight $3 holds its leases for $4 seconds.
INSERT INTO shard_members (id, name, weight, expires_at)
VALUES ($1, $2, $3, clock_timestamp() + $4 * interval '1 second');

-- name: supersede
-- Remove members named $1: an earlier life of this process, which its supervisor knows to be dead. Waits for its
-- settling transactions, as fencing does.
DELETE FROM shard_members WHERE name = $1 RETURNING id;

-- name: heartbeat
-- Member $1 lives on for $2 seconds; no row: it has been fenced.
UPDATE shard_members SET expires_at = clock_timestamp() + $2 * interval '1 second' WHERE id = $1 RETURNING id;

-- name: leave_members
-- Member $1 gives everything up.
DELETE FROM shard_members WHERE id = $1;

-- name: fence_expired
-- Remove members whose lease ran out more than $1 seconds ago. Waits for their settling transactions (FOR KEY SHARE).
DELETE FROM shard_members WHERE expires_at < clock_timestamp() - $1 * interval '1 second' RETURNING id, name;

-- name: live_members
-- All members.
SELECT id, name, weight FROM shard_members ORDER BY id;

-- name: owners
-- Owners of shards below $1, whether they still are members, and the epochs.
SELECT o.shard, o.owner, o.epoch, m.id IS NOT NULL AS alive
FROM shard_owners o LEFT JOIN shard_members m ON m.id = o.owner WHERE o.shard < $1 ORDER BY o.shard;

-- name: make_shards
-- The rows of shards 0 to $1 - 1, where missing.
INSERT INTO shard_owners (shard) SELECT * FROM generate_series(0, $1::int - 1) ON CONFLICT DO NOTHING;

-- name: take_free
-- Member $1 takes those of the shards $2 that nobody living owns; each take is a new epoch.
UPDATE shard_owners o SET owner = $1, epoch = o.epoch + 1
WHERE o.shard = ANY($2::int[])
  AND EXISTS (SELECT 1 FROM shard_members m WHERE m.id = $1)
  AND (o.owner IS NULL OR NOT EXISTS (SELECT 1 FROM shard_members m WHERE m.id = o.owner))
RETURNING o.shard, o.epoch;

-- name: release
-- Member $1 gives the shards $2 up.
UPDATE shard_owners SET owner = NULL, epoch = epoch + 1 WHERE owner = $1 AND shard = ANY($2::int[]);
