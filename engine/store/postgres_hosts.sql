-- name: timeline
-- The timeline that the server writes: one more with each promotion.
SELECT ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::integer;
