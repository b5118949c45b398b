-- name: try_lock
-- Take the lock of the rebalancer until the transaction ends; `locked` is false if another process holds it.
SELECT pg_try_advisory_xact_lock(hashtext('waybill shards')::bigint # :lock_schema) AS locked, pg_catalog.clock_timestamp() AS at;

-- name: read_states
-- Read since when domains, or the balance (empty name), have been over or under their thresholds.
SELECT domain, over_since, under_since FROM shard_watch;

-- name: write_states
-- Store that domains $1 have been over their thresholds since $2, and under them since $3.
INSERT INTO shard_watch (domain, over_since, under_since)
SELECT * FROM unnest($1::text[], $2::timestamptz[], $3::timestamptz[])
ON CONFLICT (domain) DO UPDATE SET over_since = excluded.over_since, under_since = excluded.under_since;

-- name: delete_states
-- Delete the states of domains $1.
DELETE FROM shard_watch WHERE domain = ANY($1::text[]);
