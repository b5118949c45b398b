-- name: read_pools
-- Return the pools of source addresses.
SELECT name, members::text FROM source_pools ORDER BY name;

-- name: write_pool
-- Set the members of pool $1 to $2.
INSERT INTO source_pools (name, members, changed_at) VALUES ($1, $2::jsonb, now())
ON CONFLICT (name) DO UPDATE SET members = excluded.members, changed_at = now();

-- name: delete_pool
-- Delete pool $1 unless a stream is assigned to it.
DELETE FROM source_pools p WHERE p.name = $1 AND NOT EXISTS (SELECT FROM source_assignments a WHERE a.pool = p.name)
RETURNING name;

-- name: read_assignments
-- Return the assignments of streams to pools.
SELECT stream, account_id, pool FROM source_assignments ORDER BY stream, account_id;

-- name: write_assignment
-- Assign stream $1 of account $2 (null: all accounts) to pool $3.
INSERT INTO source_assignments (stream, account_id, pool, changed_at) VALUES ($1, $2, $3, now())
ON CONFLICT (stream, account_id) DO UPDATE SET pool = excluded.pool, changed_at = now();

-- name: delete_assignment
-- Delete the assignment of stream $1 of account $2 (null: all accounts).
DELETE FROM source_assignments WHERE stream = $1 AND account_id IS NOT DISTINCT FROM $2 RETURNING stream;

-- name: read_warmups
-- Return all warm-ups, also those that are over.
SELECT ip, started_on, plan FROM source_warmups ORDER BY ip;

-- name: write_warmup
-- Warm up address $1 from day $2 on with plan $3.
INSERT INTO source_warmups (ip, started_on, plan, changed_at) VALUES ($1, $2, $3::bigint[], now())
ON CONFLICT (ip) DO UPDATE SET started_on = excluded.started_on, plan = excluded.plan, changed_at = now();

-- name: delete_warmup
-- Delete the warm-up of address $1.
DELETE FROM source_warmups WHERE ip = $1 RETURNING ip;

-- name: reserve
-- Reserve up to $4 of the $5 messages that address $2 may send to site $3 on day $1; return the number reserved. The
-- lock on one row decides between processes.
INSERT INTO source_counts AS c (day, ip, site, used, granted)
VALUES ($1, $2, $3, least($4::bigint, $5::bigint), least($4::bigint, $5::bigint))
ON CONFLICT (day, ip, site) DO UPDATE
SET granted = greatest(0, least($4::bigint, $5::bigint - c.used)),
    used = c.used + greatest(0, least($4::bigint, $5::bigint - c.used))
RETURNING granted;

-- name: give_back
-- Subtract $4 unused messages from the counts of days $1, addresses $2 and sites $3.
UPDATE source_counts c SET used = greatest(0, c.used - n.unused)
FROM unnest($1::date[], $2::text[], $3::text[], $4::bigint[]) AS n (day, ip, site, unused)
WHERE c.day = n.day AND c.ip = n.ip AND c.site = n.site;

-- name: read_counts
-- Return the messages of address $2 on day $1 by site, the largest first, at most $3 sites.
SELECT site, used FROM source_counts WHERE day = $1 AND ip = $2 ORDER BY used DESC, site LIMIT $3;

-- name: sum_counts
-- Return the messages of each address on day $1.
SELECT ip AS site, sum(used)::bigint AS used FROM source_counts WHERE day = $1 GROUP BY ip;

-- name: forget_counts
-- Delete counts from before day $1.
DELETE FROM source_counts WHERE day < $1;

-- name: kinds_of_mail
-- Return stream and origin of messages $1; $2 and $3 bound the ids for partition pruning.
SELECT id, stream, source FROM messages WHERE id = ANY($1::uuid[]) AND id BETWEEN $2 AND $3;

-- name: read_rests
-- Return rests changed since $1, at most $2, the latest first.
SELECT ip, site, until, rests, said, changed_at FROM source_rests WHERE changed_at > $1
ORDER BY changed_at DESC LIMIT $2;

-- name: read_rests_of
-- Return the rests of address $1 in force at $2, the longest first, at most $3.
SELECT ip, site, until, rests, said, changed_at FROM source_rests WHERE ip = $1 AND rests > 0 AND until > $2
ORDER BY until DESC LIMIT $3;

-- name: write_rests
-- Store rests of addresses $1 at sites $2 until $3, the $4th in a row, caused by replies $5, changed at $6.
INSERT INTO source_rests AS r (ip, site, until, rests, said, changed_at)
SELECT n.ip, n.site, n.until, n.rests, n.said, n.changed_at
FROM unnest($1::text[], $2::text[], $3::timestamptz[], $4::int[], $5::text[], $6::timestamptz[])
    AS n (ip, site, until, rests, said, changed_at)
ON CONFLICT (ip, site) DO UPDATE
SET until = excluded.until, rests = excluded.rests, said = excluded.said, changed_at = excluded.changed_at
WHERE r.changed_at < excluded.changed_at;

-- name: end_rests
-- End the rests of address $1 at site $2 (null: at all sites), as of $3.
UPDATE source_rests SET rests = 0, until = $3, changed_at = $3
WHERE ip = $1 AND rests > 0 AND ($2::text IS NULL OR site = $2) RETURNING site;

-- name: forget_rests
-- Delete rests that ended before $1.
DELETE FROM source_rests WHERE until < $1;

-- name: wake_waiting
-- Make rows that wait for warm-up due, spread over $1 seconds.
UPDATE queue SET due_at = clock_timestamp() + random() * make_interval(secs => $1)
WHERE waiting = 'warm_up' AND held_by IS NULL AND due_at > clock_timestamp() + make_interval(secs => $1)
RETURNING message_id;
