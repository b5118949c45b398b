-- name: session_settings
-- The session settings that are in effect on the server.
SELECT current_setting('lock_timeout') AS lock_timeout, current_setting('synchronous_commit') AS synchronous_commit;
