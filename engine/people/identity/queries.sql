-- name: find_identity
-- Find the identity of subject $2 at issuer $1.
SELECT id, user_id, issuer, subject, created_at, used_at FROM identities WHERE issuer = $1 AND subject = $2;

-- name: list_identities
-- List the identities of user $1, newest first.
SELECT id, user_id, issuer, subject, created_at, used_at FROM identities WHERE user_id = $1 ORDER BY id DESC;

-- name: insert_identity
-- Insert identity $1 of user $2: subject $4 at issuer $3, at $5. Returns no row if the user or the subject has another
-- identity at this issuer.
INSERT INTO identities (id, user_id, issuer, subject, created_at, used_at) VALUES ($1, $2, $3, $4, $5, $5)
ON CONFLICT DO NOTHING RETURNING id;

-- name: touch_identity
-- Record a use of identity $1 at $2.
UPDATE identities SET used_at = greatest(used_at, $2) WHERE id = $1;

-- name: delete_identity
-- Delete identity $2 of user $1.
DELETE FROM identities WHERE id = $2 AND user_id = $1;

-- name: insert_step
-- Insert step $1 of kind $2 for browser $3, user $4, issuer $5, subject $6, return path $7, app redirect $8 with challenge
-- $9, valid until $10. Deletes some steps that expired before $11.
WITH gone AS (
    DELETE FROM identity_steps WHERE id IN (
        SELECT id FROM identity_steps WHERE expires_at < $11 ORDER BY expires_at LIMIT 20 FOR UPDATE SKIP LOCKED
    )
)
INSERT INTO identity_steps (id, kind, browser, user_id, issuer, subject, return_to, app_redirect, challenge, expires_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10);

-- name: take_step
-- Consume step $1 of kind $2 at $3, if it is bound to no browser or to $4.
DELETE FROM identity_steps
WHERE id = $1 AND kind = $2 AND expires_at > $3 AND (browser IS NULL OR browser = $4)
RETURNING id, browser, user_id, issuer, subject, return_to, app_redirect, challenge, tries;

-- name: try_step
-- Count a try on step $1 of kind $2 at $3, if it is bound to no browser or to $4 and has had fewer than $5 tries.
UPDATE identity_steps SET tries = tries + 1
WHERE id = $1 AND kind = $2 AND expires_at > $3 AND (browser IS NULL OR browser = $4) AND tries < $5
RETURNING id, browser, user_id, issuer, subject, return_to, app_redirect, challenge, tries;

-- name: forget_steps_of
-- Delete all pending steps of user $1.
DELETE FROM identity_steps WHERE user_id = $1;

-- name: name_person
-- Set name $2 of person $1, if they have none.
UPDATE users SET name = $2 WHERE id = $1 AND name = '';

-- name: ways_in
-- Count the ways of user $1 to sign in without identity $3 (null: with all), where $2 is the configured issuer.
SELECT u.password_hash IS NOT NULL AS password,
       (SELECT count(*) FROM passkeys p WHERE p.user_id = u.id AND p.suspected_at IS NULL) AS passkeys,
       (SELECT count(*) FROM identities i WHERE i.user_id = u.id AND i.issuer = $2 AND i.id IS DISTINCT FROM $3) AS identities
FROM users u WHERE u.id = $1;
