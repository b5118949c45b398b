-- name: lock_factor
-- The second factor of person $1, whose row nobody else changes until this transaction ends.
SELECT email, totp_sealed, totp_enabled_at, totp_last_step FROM users WHERE id = $1 FOR NO KEY UPDATE;

-- name: factor_state
-- Since when person $1 has a second factor, and how many recovery codes are left.
SELECT totp_enabled_at, (SELECT count(*) FROM recovery_codes WHERE user_id = $1) AS recovery_codes
FROM users WHERE id = $1;

-- name: begin_enrolment
-- Person $1 is about to share secret $2, sealed, with an app; nothing changes for one who has done so before.
UPDATE users SET totp_sealed = $2, totp_last_step = NULL WHERE id = $1 AND totp_enabled_at IS NULL RETURNING id;

-- name: enable_factor
-- Codes of the shared secret are asked of person $1 from $2 on; that of step $3 is used.
UPDATE users SET totp_enabled_at = $2, totp_last_step = $3 WHERE id = $1;

-- name: disable_factor
-- Person $1 is asked for no code any more.
UPDATE users SET totp_sealed = NULL, totp_enabled_at = NULL, totp_last_step = NULL
WHERE id = $1 AND totp_enabled_at IS NOT NULL RETURNING id;

-- name: use_step
-- Use up time step $2 and all before it for person $1; no row when it is used up already.
UPDATE users SET totp_last_step = $2
WHERE id = $1 AND totp_enabled_at IS NOT NULL AND (totp_last_step IS NULL OR totp_last_step < $2) RETURNING id;

-- name: insert_recovery_codes
-- Digests $2 of new recovery codes of person $1.
INSERT INTO recovery_codes (user_id, digest) SELECT $1, unnest($2::bytea[]);

-- name: drop_recovery_codes
-- Person $1 has no recovery codes any more.
DELETE FROM recovery_codes WHERE user_id = $1;

-- name: use_recovery_code
-- Use up the recovery code of person $1 with digest $2; how many are left, or no row when there is no such code.
WITH used AS (
    DELETE FROM recovery_codes WHERE user_id = $1 AND digest = $2 RETURNING digest
)
SELECT count(*) - 1 AS remaining FROM recovery_codes WHERE user_id = $1 HAVING EXISTS (SELECT FROM used);

-- name: tries_from
-- Wrong codes in a row of person $1 from place $2.
SELECT failed, failed_at, locked_until FROM code_tries WHERE user_id = $1 AND place = $2;

-- name: count_failure
-- Person $1 has now had $3 wrong codes in a row from place $2, the last at $4, and has to wait until $5 (null: need not).
INSERT INTO code_tries (user_id, place, failed, failed_at, locked_until) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (user_id, place) DO UPDATE SET failed = $3, failed_at = $4, locked_until = $5;

-- name: forget_failures
-- A code of person $1 from place $2 (null: from anywhere) was right.
DELETE FROM code_tries WHERE user_id = $1 AND ($2::text IS NULL OR place = $2);
