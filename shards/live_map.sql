-- name: read_pins
-- Where shards are pinned to.
SELECT shard, target, why, changed_at FROM shard_pins ORDER BY shard;

-- name: read_places
-- The operator's words about members and nodes.
SELECT name, weight, draining, why, changed_at FROM shard_places ORDER BY name;

-- name: read_plan
-- The loads that the map reckons with, as JSON.
SELECT loads::text, whose, why, changed_at FROM shard_plan;

-- name: pin
-- Shards $1 are to be at $2, for reason $3.
INSERT INTO shard_pins (shard, target, why) SELECT s.shard, $2, $3 FROM unnest($1::int[]) AS s (shard)
ON CONFLICT (shard) DO UPDATE SET target = excluded.target, why = excluded.why, changed_at = now();

-- name: unpin
-- Shards $1 may be anywhere.
DELETE FROM shard_pins WHERE shard = ANY($1::int[]);

-- name: write_place
-- $1 has weight $2 and, if $3, gives everything away, for reason $4.
INSERT INTO shard_places (name, weight, draining, why) VALUES ($1, $2, $3, $4)
ON CONFLICT (name) DO UPDATE
SET weight = excluded.weight, draining = excluded.draining, why = excluded.why, changed_at = now();

-- name: forget_place
-- Nothing is said about $1.
DELETE FROM shard_places WHERE name = $1;

-- name: write_plan
-- The map reckons with loads $1 on the word of $2, for reason $3.
INSERT INTO shard_plan (loads, whose, why) VALUES ($1::jsonb, $2, $3)
ON CONFLICT (one) DO UPDATE
SET loads = excluded.loads, whose = excluded.whose, why = excluded.why, changed_at = now();

-- name: forget_plan
-- Shards are counted.
DELETE FROM shard_plan;
