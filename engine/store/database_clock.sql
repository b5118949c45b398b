-- name: read_clock
-- The current time, also inside a transaction.
SELECT clock_timestamp() AS at;
