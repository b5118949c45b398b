-- name: only_one
-- True for the one who keeps the map, until its transaction ends.
SELECT pg_try_advisory_xact_lock(hashtext('waybill shards')) AS alone, clock_timestamp() AS at;

-- name: read_watch
-- Since when domains, or the balance, have been beyond their bounds.
SELECT domain, over_since, under_since FROM shard_watch;

-- name: write_watch
-- Domains $1 have been over their bounds since $2, under them since $3.
INSERT INTO shard_watch (domain, over_since, under_since)
SELECT * FROM unnest($1::text[], $2::timestamptz[], $3::timestamptz[])
ON CONFLICT (domain) DO UPDATE SET over_since = excluded.over_since, under_since = excluded.under_since;

-- name: forget_watch
-- Nothing is to be remembered of domains $1.
DELETE FROM shard_watch WHERE domain = ANY($1::text[]);
