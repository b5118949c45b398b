-- name: join_members
-- Add member $1 with name $2 and weight $3; its lease runs for $4 seconds.
INSERT INTO shard_members (id, name, weight, expires_at)
VALUES ($1, $2, $3, pg_catalog.clock_timestamp() + $4 * interval '1 second');

-- name: supersede
-- Remove members named $1 except $2, which is a member: earlier runs of this process, which its supervisor knows to have
-- ended. Waits for their settling transactions, as fencing does.
DELETE FROM shard_members WHERE name = $1 AND id <> $2 AND EXISTS (SELECT FROM shard_members WHERE id = $2) RETURNING id;

-- name: heartbeat
-- Extend the lease of member $1 to $2 seconds from now. Returns no row if the member has been fenced.
UPDATE shard_members SET expires_at = pg_catalog.clock_timestamp() + $2 * interval '1 second' WHERE id = $1 RETURNING id;

-- name: leave_members
-- Remove member $1, which releases its shards.
DELETE FROM shard_members WHERE id = $1;

-- name: fence_expired
-- Remove members whose lease ran out more than $1 seconds ago. Waits for their settling transactions (FOR KEY SHARE).
DELETE FROM shard_members WHERE expires_at < pg_catalog.clock_timestamp() - $1 * interval '1 second' RETURNING id, name;

-- name: live_members
-- Read all members.
SELECT id, name, weight FROM shard_members ORDER BY id;

-- name: owners
-- Read owner and epoch of the shards below $1; `alive`: the owner is still a member.
SELECT o.shard, o.owner, o.epoch, m.id IS NOT NULL AS alive
FROM shard_owners o LEFT JOIN shard_members m ON m.id = o.owner WHERE o.shard < $1 ORDER BY o.shard;

-- name: make_shards
-- Insert the missing rows of shards 0 to $1 - 1.
INSERT INTO shard_owners (shard) SELECT * FROM generate_series(0, $1::int - 1) ON CONFLICT DO NOTHING;

-- name: take_free
-- Give member $1 those of the shards $2 that no present member owns; each change of owner starts a new epoch.
UPDATE shard_owners o SET owner = $1, epoch = o.epoch + 1
WHERE o.shard = ANY($2::int[])
  AND EXISTS (SELECT 1 FROM shard_members m WHERE m.id = $1)
  AND (o.owner IS NULL OR NOT EXISTS (SELECT 1 FROM shard_members m WHERE m.id = o.owner))
RETURNING o.shard, o.epoch;

-- name: release
-- Release the shards $2 of member $1.
UPDATE shard_owners SET owner = NULL, epoch = epoch + 1 WHERE owner = $1 AND shard = ANY($2::int[]);
