-- name: read_clock
-- The time.
SELECT clock_timestamp() AS at;
