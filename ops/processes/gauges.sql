-- name: queue_by_state
-- Pending deliveries by state (held by the operator, waiting for a retry, waiting for another reason, or new): their
-- number, and the creation time of the oldest message (Unix milliseconds).
SELECT CASE WHEN held_by IS NOT NULL THEN 'held' WHEN attempts > 0 THEN 'retry' WHEN waiting IS NOT NULL THEN 'waiting'
            ELSE 'new' END AS state,
       count(*) AS rows, min(uuid7_ms(message_id)) AS oldest_ms
FROM queue GROUP BY 1;

-- name: backlog
-- Scheduled messages and system mail at $1: their number, and the seconds by which the oldest is overdue; active holds.
SELECT (SELECT count(*) FROM schedules) AS scheduled,
       (SELECT coalesce(greatest(0, extract(epoch FROM $1::timestamptz - min(look_at))), 0)::float8 FROM schedules) AS schedule_overdue_s,
       (SELECT count(*) FROM system_mail) AS system_mail,
       (SELECT coalesce(greatest(0, extract(epoch FROM $1::timestamptz - min(due_at))), 0)::float8 FROM system_mail) AS system_overdue_s,
       (SELECT count(*) FROM holds WHERE NOT ended AND (until IS NULL OR until > $1)) AS holds;

-- name: broadcasts_by_status
-- Broadcasts that workers look at, by status: their number, their recipients who wait, and by how many seconds the longest
-- due one is overdue.
SELECT b.status, count(*) AS broadcasts,
       coalesce(sum(p.recipients - p.accepted - p.suppressed - p.removed - p.template_error - p.unconfirmed - p.unsubscribed), 0)::bigint AS waiting,
       coalesce(greatest(0, extract(epoch FROM clock_timestamp() - min(w.due_at))), 0)::float8 AS overdue_s
FROM broadcast_work w JOIN broadcasts b ON b.id = w.broadcast_id
LEFT JOIN broadcast_progress p ON p.broadcast_id = b.id GROUP BY b.status;

-- name: broadcasts_in_review
-- Count the broadcasts that wait for review.
SELECT count(*) AS broadcasts FROM broadcasts WHERE status = 'in_review';

-- name: alert_rules_by_state
-- Alert rules by kind and state: their number, and the seconds since the measurement of the one that has waited longest,
-- without disabled rules and those of closing accounts.
SELECT r.kind, CASE WHEN r.firing_since IS NOT NULL THEN 'firing' WHEN r.last_value IS NULL THEN 'unknown' ELSE 'ok' END AS state,
       count(*) AS rules,
       coalesce(max(extract(epoch FROM clock_timestamp() - coalesce(r.last_measured_at, r.created_at))), 0)::float8 AS waited_s
FROM alert_rules r JOIN accounts a ON a.id = r.account_id AND a.status <> 'closing' WHERE r.enabled GROUP BY 1, 2;

-- name: sites_by_phase
-- Number of sites in each phase that were updated since $1; a site with different phases counts once in each.
SELECT state ->> 'phase' AS phase, count(DISTINCT site) AS sites FROM site_states
WHERE updated_at > $1 GROUP BY 1;

-- name: deliverers
-- Number of delivering members, and of the shards below $1 that none of them owns.
SELECT (SELECT count(*) FROM shard_members WHERE expires_at > pg_catalog.clock_timestamp()) AS members,
       $1::int - (SELECT count(*) FROM shard_owners o JOIN shard_members m ON m.id = o.owner WHERE o.shard < $1::int) AS free;

-- name: sessions
-- Connections to this database by process kind and state: their number, the age of the oldest transaction and of the
-- longest wait for a lock (seconds), and the server's max_connections.
SELECT CASE WHEN application_name LIKE 'waybill %' THEN split_part(substr(application_name, 9), ' ', 1) ELSE 'others' END AS process,
       CASE WHEN wait_event_type = 'Lock' THEN 'waiting for a lock' ELSE coalesce(state, 'unknown') END AS state,
       count(*) AS sessions,
       coalesce(max(extract(epoch FROM pg_catalog.clock_timestamp() - xact_start)), 0)::float8 AS transaction_s,
       coalesce(max(extract(epoch FROM pg_catalog.clock_timestamp() - state_change)) FILTER (WHERE wait_event_type = 'Lock'), 0)::float8 AS lock_s,
       current_setting('max_connections')::bigint AS most
FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() GROUP BY 1, 2;

-- name: log_ends
-- The next $2 accounts after $1, except moving ones, and whether the last event of each account log matches the account
-- head.
SELECT h.account_id, h.seq = h.purged_through_seq AND h.hash = h.purged_hash
       OR EXISTS (SELECT FROM events e WHERE e.account_id = h.account_id AND e.seq = h.seq AND e.hash = h.hash) AS sound
FROM account_heads h WHERE h.account_id > $1 AND h.closed_at_seq IS NULL ORDER BY h.account_id LIMIT $2;

-- name: schema
-- The latest migration.
SELECT name FROM schema_migrations ORDER BY number DESC LIMIT 1;
