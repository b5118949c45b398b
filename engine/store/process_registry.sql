-- name: show_process
-- Write the row of process $1: host $2, name $3, kind $4, version $5, pid $6, since $7, shards $8, in hand $9, rate
-- $10, memory $11.
INSERT INTO processes (id, host, name, kind, version, pid, since, shards, in_hand, rate, memory_bytes)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
ON CONFLICT (id) DO UPDATE
SET seen_at = pg_catalog.clock_timestamp(), shards = excluded.shards, in_hand = excluded.in_hand, rate = excluded.rate,
    memory_bytes = excluded.memory_bytes;

-- name: leave_process
-- Delete the row of process $1, which has ended.
DELETE FROM processes WHERE id = $1;

-- name: read_processes
-- All processes, and the seconds since the last report of each.
SELECT host, name, kind, version, pid, since, extract(epoch FROM pg_catalog.clock_timestamp() - seen_at)::float8 AS silent_s, shards,
       in_hand, rate, memory_bytes
FROM processes ORDER BY host, kind, name, since;

-- name: forget_processes
-- Delete processes without a report for $1 seconds.
DELETE FROM processes WHERE seen_at < pg_catalog.clock_timestamp() - make_interval(secs => $1);
