-- name: drop_factors
-- Forget the authenticator, recovery codes and passkeys of person $1; how many there were of the first and the last.
WITH codes AS (
    DELETE FROM recovery_codes WHERE user_id = $1
), keys AS (
    DELETE FROM passkeys WHERE user_id = $1 RETURNING id
), factor AS (
    UPDATE users SET totp_sealed = NULL, totp_enabled_at = NULL, totp_last_step = NULL
    WHERE id = $1 AND totp_sealed IS NOT NULL RETURNING id
)
SELECT (SELECT count(*) FROM keys) + (SELECT count(*) FROM factor) AS dropped;
