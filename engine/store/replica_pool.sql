-- name: server_identity
-- The identifier that a primary and its replicas have in common, the start of the server, which no other has, and the
-- database and schema of the session.
SELECT (SELECT system_identifier FROM pg_control_system()) AS system, pg_postmaster_start_time() AS started_at,
       current_database()::text AS database, current_schema()::text AS schema;
