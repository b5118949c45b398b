-- name: split_domains
-- The domains whose mail lies in several shards.
SELECT domain, parts FROM shard_splits WHERE parts > 1;

-- name: all_splits
-- What was said about any domain, in their order.
SELECT domain, parts, whose, why, changed_at FROM shard_splits ORDER BY domain;

-- name: one_split
-- The same of domain $1.
SELECT domain, parts, whose, why, changed_at FROM shard_splits WHERE domain = $1;

-- name: lock_splits
-- One change at a time.
SELECT pg_advisory_xact_lock(hashtext('waybill splits'));

-- name: write_split
-- Domain $1 has $2 parts on the word of $3, for reason $4.
INSERT INTO shard_splits (domain, parts, whose, why) VALUES ($1, $2, $3, $4)
ON CONFLICT (domain) DO UPDATE
SET parts = excluded.parts, whose = excluded.whose, why = excluded.why, changed_at = now();

-- name: forget_split
-- Nothing is said about domain $1 any more.
DELETE FROM shard_splits WHERE domain = $1;

-- name: begin_rehoming
-- Rows of domain $1 in the shards $2 may belong elsewhere from now on.
INSERT INTO shard_rehomings (shard, domain) SELECT s.shard, $1 FROM unnest($2::int[]) AS s (shard)
ON CONFLICT (shard, domain) DO UPDATE SET began_at = clock_timestamp();
