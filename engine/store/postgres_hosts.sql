-- name: timeline
-- The timeline of the server, which increases with each promotion.
SELECT ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::integer;
