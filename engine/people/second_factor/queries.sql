-- name: lock_factor
-- Lock the second factor of person $1 against changes until this transaction ends.
SELECT email, totp_sealed, totp_enabled_at, totp_last_step FROM users WHERE id = $1 FOR NO KEY UPDATE;

-- name: factor_state
-- Read the time from which person $1 has a second factor, and the number of recovery codes left.
SELECT totp_enabled_at, (SELECT count(*) FROM recovery_codes WHERE user_id = $1) AS recovery_codes
FROM users WHERE id = $1;

-- name: begin_enrolment
-- Store sealed secret $2 for the enrolment of person $1; returns no row if a second factor is enabled.
UPDATE users SET totp_sealed = $2, totp_last_step = NULL WHERE id = $1 AND totp_enabled_at IS NULL RETURNING id;

-- name: enable_factor
-- Enable the second factor of person $1 at $2; the code of step $3 is consumed.
UPDATE users SET totp_enabled_at = $2, totp_last_step = $3 WHERE id = $1;

-- name: disable_factor
-- Disable the second factor of person $1.
UPDATE users SET totp_sealed = NULL, totp_enabled_at = NULL, totp_last_step = NULL
WHERE id = $1 AND totp_enabled_at IS NOT NULL RETURNING id;

-- name: use_step
-- Consume time step $2 and all earlier ones of person $1; returns no row if it was consumed before.
UPDATE users SET totp_last_step = $2
WHERE id = $1 AND totp_enabled_at IS NOT NULL AND (totp_last_step IS NULL OR totp_last_step < $2) RETURNING id;

-- name: insert_recovery_codes
-- Insert digests $2 of new recovery codes of person $1, under the pepper with fingerprint $3.
INSERT INTO recovery_codes (user_id, digest, pepper_print) SELECT $1, unnest($2::bytea[]), $3;

-- name: drop_recovery_codes
-- Delete all recovery codes of person $1.
DELETE FROM recovery_codes WHERE user_id = $1;

-- name: use_recovery_code
-- Consume the recovery code of person $1 with one of the digests $2; returns how many are left, or no row if there is no such code.
WITH used AS (
    DELETE FROM recovery_codes WHERE user_id = $1 AND digest = ANY ($2::bytea[]) RETURNING digest
)
SELECT count(*) - 1 AS remaining FROM recovery_codes WHERE user_id = $1 HAVING EXISTS (SELECT FROM used);

-- name: tries_from
-- Read the wrong codes in a row of person $1 from network place $2.
SELECT failed, failed_at, locked_until FROM code_tries WHERE user_id = $1 AND place = $2;

-- name: count_failure
-- Store $3 wrong codes in a row of person $1 from network place $2, the last at $4; locked until $5 (null: not locked).
INSERT INTO code_tries (user_id, place, failed, failed_at, locked_until) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (user_id, place) DO UPDATE SET failed = $3, failed_at = $4, locked_until = $5;

-- name: forget_failures
-- Delete the wrong codes of person $1 from network place $2 (null: from all).
DELETE FROM code_tries WHERE user_id = $1 AND ($2::text IS NULL OR place = $2);
