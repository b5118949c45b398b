-- name: session_settings
-- What a session was opened with, as the server knows it.
SELECT current_setting('lock_timeout') AS lock_timeout, current_setting('synchronous_commit') AS synchronous_commit;
