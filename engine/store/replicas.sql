-- name: primary_state
-- The place up to which the primary has written its log, its timeline, and the mark with its age in seconds.
SELECT (pg_current_wal_flush_lsn() - '0/0'::pg_lsn)::bigint AS place,
       ('x' || substr(pg_walfile_name(pg_current_wal_flush_lsn()), 1, 8))::bit(32)::integer AS timeline,
       m.timeline AS mark_timeline, m.marked_at,
       extract(epoch FROM pg_catalog.clock_timestamp() - m.marked_at)::float8 AS mark_age_s
FROM (SELECT) AS one LEFT JOIN replica_marks m ON true;

-- name: mark_primary
-- Write the mark with the primary's timeline $1.
INSERT INTO replica_marks (timeline, marked_at) VALUES ($1, pg_catalog.clock_timestamp())
ON CONFLICT (only_row) DO UPDATE SET timeline = excluded.timeline, marked_at = excluded.marked_at;

-- name: replica_state
-- The place in the log up to which a replica shows changes (null: the server is no replica), and the mark as it shows
-- it.
SELECT (CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() - '0/0'::pg_lsn END)::bigint AS place,
       m.timeline AS mark_timeline, m.marked_at
FROM (SELECT) AS one LEFT JOIN replica_marks m ON true;
