-- name: server_facts
-- Settings for durability and replication, connections in use, the server's clock and its replicas.
SELECT current_setting('server_version_num')::int AS version, current_setting('fsync') AS fsync,
       current_setting('synchronous_commit') AS synchronous_commit,
       current_setting('full_page_writes') AS full_page_writes,
       current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int AS connections,
       -- Sessions of clients: `backend_type` of other users' sessions is hidden from a user without rights.
       (SELECT count(*)::int FROM pg_stat_activity WHERE datid IS NOT NULL AND usesysid IS NOT NULL) AS used,
       pg_catalog.clock_timestamp() AS now,
       (SELECT count(*)::int FROM pg_stat_replication) AS replicas,
       (SELECT count(*)::int FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum')) AS synchronous,
       (SELECT count(*)::int FROM pg_stat_replication WHERE sync_state IS NULL) AS hidden,
       current_setting('synchronous_standby_names') AS wanted;

-- name: due_facts
-- Number of due rows in the shards below $1 (at most $2 counted per shard), and the oldest due time.
SELECT coalesce(sum(d.rows), 0)::bigint AS rows, min(d.oldest) AS oldest
FROM generate_series(0, $1::int - 1) AS s (shard)
CROSS JOIN LATERAL (
    SELECT count(*) AS rows, min(due.due_at) AS oldest
    FROM (SELECT q.due_at FROM queue q WHERE q.shard = s.shard AND q.due_at <= now() ORDER BY q.due_at LIMIT $2) AS due
) AS d;

-- name: shard_facts
-- How many shards below $1 have no owner, how many members there are, and the names of those with an expired lease.
SELECT ($1::int - (SELECT count(*) FROM shard_owners o JOIN shard_members m ON m.id = o.owner WHERE o.shard < $1))::int
           AS unowned,
       (SELECT count(*)::int FROM shard_members) AS members,
       ARRAY(SELECT name FROM shard_members WHERE expires_at < pg_catalog.clock_timestamp() ORDER BY name) AS expired;

-- name: verified_domains
-- The newest verified domains, at most $1.
SELECT account_id, name FROM domains WHERE status = 'verified' ORDER BY id DESC LIMIT $1;

-- name: any_unsubscribe_link
-- Return whether any message was sent with an unsubscribe link of this installation.
SELECT EXISTS (SELECT FROM unsubscribe_links) AS any_link;
