-- fragment: other_ways
-- Delete the passkeys and identities of person $1, with pending sign-ins.
keys AS (
    DELETE FROM passkeys WHERE user_id = $1 RETURNING id
), identity AS (
    DELETE FROM identities WHERE user_id = $1 RETURNING id
), step AS (
    DELETE FROM identity_steps WHERE user_id = $1
)

-- name: drop_other_ways
-- Delete the passkeys and identities of person $1, with pending sign-ins; return how many.
WITH :other_ways
SELECT (SELECT count(*) FROM keys) + (SELECT count(*) FROM identity) AS dropped;

-- name: drop_factors
-- Delete the authenticator, recovery codes, passkeys and identities of person $1, with pending sign-ins; return how many
-- authenticators, passkeys and identities.
WITH :other_ways, codes AS (
    DELETE FROM recovery_codes WHERE user_id = $1
), factor AS (
    UPDATE users SET totp_sealed = NULL, totp_enabled_at = NULL, totp_last_step = NULL
    WHERE id = $1 AND totp_sealed IS NOT NULL RETURNING id
)
SELECT (SELECT count(*) FROM keys) + (SELECT count(*) FROM identity) + (SELECT count(*) FROM factor) AS dropped;
