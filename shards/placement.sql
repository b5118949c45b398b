-- name: read_pins
-- Read the pins: the target of each pinned shard.
SELECT shard, target, why, changed_at FROM shard_pins ORDER BY shard;

-- name: read_policies
-- Read the operator's weights and drain orders for members and nodes.
SELECT name, weight, draining, why, changed_at FROM shard_places ORDER BY name;

-- name: read_load_plan
-- Read the loads that shards are balanced by, as JSON.
SELECT loads::text, whose, why, changed_at FROM shard_plan;

-- name: pin
-- Pin shards $1 to $2, for reason $3.
INSERT INTO shard_pins (shard, target, why) SELECT s.shard, $2, $3 FROM unnest($1::int[]) AS s (shard)
ON CONFLICT (shard) DO UPDATE SET target = excluded.target, why = excluded.why, changed_at = pg_catalog.now();

-- name: unpin
-- Remove the pins of shards $1.
DELETE FROM shard_pins WHERE shard = ANY($1::int[]);

-- name: write_policy
-- Give member or node $1 weight $2; if $3, drain it; for reason $4.
INSERT INTO shard_places (name, weight, draining, why) VALUES ($1, $2, $3, $4)
ON CONFLICT (name) DO UPDATE
SET weight = excluded.weight, draining = excluded.draining, why = excluded.why, changed_at = pg_catalog.now();

-- name: delete_policy
-- Return member or node $1 to the default weight, without draining.
DELETE FROM shard_places WHERE name = $1;

-- name: write_load_plan
-- Balance shards by loads $1, decided by $2 (operator or rule), for reason $3.
INSERT INTO shard_plan (loads, whose, why) VALUES ($1::jsonb, $2, $3)
ON CONFLICT (one) DO UPDATE
SET loads = excluded.loads, whose = excluded.whose, why = excluded.why, changed_at = pg_catalog.now();

-- name: delete_load_plan
-- Balance by the number of shards again.
DELETE FROM shard_plan;
