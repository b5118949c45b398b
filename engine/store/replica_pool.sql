-- name: server_identity
-- The identifier that a primary and its replicas have in common, and the start of the server, which no other has.
SELECT (SELECT system_identifier FROM pg_control_system()) AS system, pg_postmaster_start_time() AS started_at;
