-- name: insert_challenge
-- Insert the challenge with digest $1 for holder $2, valid until $3. Deletes some that expired before $4.
WITH forgotten AS (
    DELETE FROM passkey_challenges WHERE digest IN (
        SELECT digest FROM passkey_challenges WHERE expires_at < $4 ORDER BY expires_at LIMIT 50 FOR UPDATE SKIP LOCKED
    )
)
INSERT INTO passkey_challenges (digest, holder, expires_at) VALUES ($1, $2, $3);

-- name: burn_challenge
-- Consume the challenge with digest $1 of holder $2 at $3.
DELETE FROM passkey_challenges WHERE digest = $1 AND holder = $2 AND expires_at > $3 RETURNING digest;

-- name: list_passkeys
-- List the passkeys of person $1, oldest first.
SELECT id, credential_id, name, transports, backed_up, created_at, last_used_at, suspected_at
FROM passkeys WHERE user_id = $1 ORDER BY id;

-- name: find_passkey
-- Find the passkey with credential id $1.
SELECT id, user_id, name, public_key, sign_count, backup_eligible, suspected_at FROM passkeys WHERE credential_id = $1;

-- name: insert_passkey
-- Insert passkey $1 of person $2: credential id $3, public key $4, counter $5, name $6, transports $7, backup eligible $8,
-- backed up $9, created at $10. Returns no row if the credential id exists.
INSERT INTO passkeys (id, user_id, credential_id, public_key, sign_count, name, transports, backup_eligible, backed_up,
                      created_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT (credential_id) DO NOTHING RETURNING id;

-- name: use_passkey
-- Record a use of passkey $1: counter $2, time $3, backed up $4. Returns no row if the counter has not increased.
UPDATE passkeys SET sign_count = $2, last_used_at = $3, backed_up = $4
WHERE id = $1 AND suspected_at IS NULL AND (sign_count < $2 OR (sign_count = 0 AND $2 = 0)) RETURNING id;

-- name: suspect_passkey
-- Mark passkey $1 as possibly copied at $2; returns no row if it was marked before.
UPDATE passkeys SET suspected_at = $2 WHERE id = $1 AND suspected_at IS NULL RETURNING id;

-- name: rename_passkey
-- Rename passkey $2 of person $1 to $3.
UPDATE passkeys SET name = $3 WHERE user_id = $1 AND id = $2
RETURNING id, credential_id, name, transports, backed_up, created_at, last_used_at, suspected_at;

-- name: delete_passkey
-- Delete passkey $2 of person $1; returns its name and whether it was marked as copied.
DELETE FROM passkeys WHERE user_id = $1 AND id = $2 RETURNING name, suspected_at IS NOT NULL AS suspected;
