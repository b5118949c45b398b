-- name: write_shard_rates
-- Store the messages per second, $3, that process $1 settles in shards $2.
INSERT INTO shard_rates (shard, process, rate) SELECT n.shard, $1, n.rate FROM unnest($2::int[], $3::real[]) AS n (shard, rate)
ON CONFLICT (shard) DO UPDATE SET process = excluded.process, rate = excluded.rate, measured_at = pg_catalog.clock_timestamp();

-- name: write_domain_rates
-- Store the messages per second, $3, that process $1 settles for domains $2.
INSERT INTO domain_rates (domain, process, rate)
SELECT n.domain, $1, n.rate FROM unnest($2::text[], $3::real[]) AS n (domain, rate)
ON CONFLICT (domain, process) DO UPDATE SET rate = excluded.rate, measured_at = pg_catalog.clock_timestamp();

-- name: read_shard_rates
-- Read messages per second by shard, measured within the last $1 seconds.
SELECT shard, rate FROM shard_rates WHERE measured_at > pg_catalog.clock_timestamp() - make_interval(secs => $1);

-- name: read_domain_rates
-- Read messages per second by domain, summed over all processes, measured within the last $1 seconds; busiest first.
SELECT domain, sum(rate)::real AS rate FROM domain_rates
WHERE measured_at > pg_catalog.clock_timestamp() - make_interval(secs => $1) GROUP BY domain ORDER BY rate DESC, domain LIMIT 100;

-- name: delete_shard_rates
-- Delete shard rates measured more than $1 seconds ago.
DELETE FROM shard_rates WHERE measured_at < pg_catalog.clock_timestamp() - make_interval(secs => $1);

-- name: delete_domain_rates
-- Delete domain rates measured more than $1 seconds ago.
DELETE FROM domain_rates WHERE measured_at < pg_catalog.clock_timestamp() - make_interval(secs => $1);
