-- name: write_shard_rates
-- Process $1 settles in shards $2 so many messages a second, $3.
INSERT INTO shard_rates (shard, process, rate) SELECT n.shard, $1, n.rate FROM unnest($2::int[], $3::real[]) AS n (shard, rate)
ON CONFLICT (shard) DO UPDATE SET process = excluded.process, rate = excluded.rate, measured_at = clock_timestamp();

-- name: write_domain_rates
-- The same of domains $2.
INSERT INTO domain_rates (domain, process, rate)
SELECT n.domain, $1, n.rate FROM unnest($2::text[], $3::real[]) AS n (domain, rate)
ON CONFLICT (domain, process) DO UPDATE SET rate = excluded.rate, measured_at = clock_timestamp();

-- name: read_shard_rates
-- Messages a second by shard, as measured within the last $1 seconds.
SELECT shard, rate FROM shard_rates WHERE measured_at > clock_timestamp() - make_interval(secs => $1);

-- name: read_domain_rates
-- The same by domain, of all processes together, the busiest first.
SELECT domain, sum(rate)::real AS rate FROM domain_rates
WHERE measured_at > clock_timestamp() - make_interval(secs => $1) GROUP BY domain ORDER BY rate DESC, domain LIMIT 100;

-- name: forget_shard_rates
-- What was measured more than $1 seconds ago.
DELETE FROM shard_rates WHERE measured_at < clock_timestamp() - make_interval(secs => $1);

-- name: forget_domain_rates
-- The same of domains.
DELETE FROM domain_rates WHERE measured_at < clock_timestamp() - make_interval(secs => $1);
