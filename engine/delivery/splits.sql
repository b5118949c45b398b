-- name: split_domains
-- Return the domains that have several parts.
SELECT domain, parts FROM shard_splits WHERE parts > 1;

-- name: all_splits
-- Return all stored splits by domain.
SELECT domain, parts, whose, why, changed_at FROM shard_splits ORDER BY domain;

-- name: one_split
-- Return the stored split of domain $1.
SELECT domain, parts, whose, why, changed_at FROM shard_splits WHERE domain = $1;

-- name: lock_splits
-- Allow one change of splits at a time.
SELECT pg_advisory_xact_lock(hashtext('waybill splits')::bigint # :lock_schema);

-- name: write_split
-- Set domain $1 to $2 parts, by author $3, with reason $4.
INSERT INTO shard_splits (domain, parts, whose, why) VALUES ($1, $2, $3, $4)
ON CONFLICT (domain) DO UPDATE
SET parts = excluded.parts, whose = excluded.whose, why = excluded.why, changed_at = pg_catalog.now();

-- name: forget_split
-- Delete the split of domain $1.
DELETE FROM shard_splits WHERE domain = $1;

-- name: begin_rehoming
-- Mark that rows of domain $1 in shards $2 may belong to other shards.
INSERT INTO shard_rehomings (shard, domain) SELECT s.shard, $1 FROM unnest($2::int[]) AS s (shard)
ON CONFLICT (shard, domain) DO UPDATE SET began_at = pg_catalog.clock_timestamp();
