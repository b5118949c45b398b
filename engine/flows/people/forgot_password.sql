-- name: drop_factors
-- Delete the authenticator, recovery codes and passkeys of person $1; return how many authenticators and passkeys.
WITH codes AS (
    DELETE FROM recovery_codes WHERE user_id = $1
), keys AS (
    DELETE FROM passkeys WHERE user_id = $1 RETURNING id
), factor AS (
    UPDATE users SET totp_sealed = NULL, totp_enabled_at = NULL, totp_last_step = NULL
    WHERE id = $1 AND totp_sealed IS NOT NULL RETURNING id
)
SELECT (SELECT count(*) FROM keys) + (SELECT count(*) FROM factor) AS dropped;
