-- name: find_identity
-- Who is subject $2 at issuer $1.
SELECT id, user_id, issuer, subject, created_at, used_at FROM identities WHERE issuer = $1 AND subject = $2;

-- name: list_identities
-- The identities of user $1, the newest first.
SELECT id, user_id, issuer, subject, created_at, used_at FROM identities WHERE user_id = $1 ORDER BY id DESC;

-- name: insert_identity
-- Identity $1 of user $2: subject $4 at issuer $3, from $5 on. No row where either has another one there.
INSERT INTO identities (id, user_id, issuer, subject, created_at, used_at) VALUES ($1, $2, $3, $4, $5, $5)
ON CONFLICT DO NOTHING RETURNING id;

-- name: touch_identity
-- Identity $1 was used at $2.
UPDATE identities SET used_at = greatest(used_at, $2) WHERE id = $1;

-- name: delete_identity
-- Identity $2 of user $1 is theirs no more.
DELETE FROM identities WHERE id = $2 AND user_id = $1;

-- name: insert_step
-- Step $1 of kind $2, bound to browser $3, for user $4 who is subject $6 at issuer $5, leading back to $7 or app $8 with
-- challenge $9, until $10; some of those that ended before $11 go.
WITH gone AS (
    DELETE FROM identity_steps WHERE id IN (
        SELECT id FROM identity_steps WHERE expires_at < $11 ORDER BY expires_at LIMIT 20 FOR UPDATE SKIP LOCKED
    )
)
INSERT INTO identity_steps (id, kind, browser, user_id, issuer, subject, return_to, app_redirect, challenge, expires_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10);

-- name: take_step
-- Use step $1 of kind $2 up at $3, where it is bound to no browser or to $4.
DELETE FROM identity_steps
WHERE id = $1 AND kind = $2 AND expires_at > $3 AND (browser IS NULL OR browser = $4)
RETURNING id, browser, user_id, issuer, subject, return_to, app_redirect, challenge, tries;

-- name: try_step
-- Count a try on step $1 of kind $2 at $3, where it is bound to no browser or to $4 and has had fewer than $5.
UPDATE identity_steps SET tries = tries + 1
WHERE id = $1 AND kind = $2 AND expires_at > $3 AND (browser IS NULL OR browser = $4) AND tries < $5
RETURNING id, browser, user_id, issuer, subject, return_to, app_redirect, challenge, tries;

-- name: forget_steps_of
-- Whatever user $1 has under way ends.
DELETE FROM identity_steps WHERE user_id = $1;

-- name: name_person
-- Person $1, who has no name yet, is called $2.
UPDATE users SET name = $2 WHERE id = $1 AND name = '';

-- name: ways_in
-- How user $1 can sign in beside identity $3 (null: with all of theirs), where $2 is the issuer of today.
SELECT u.password_hash IS NOT NULL AS password,
       (SELECT count(*) FROM passkeys p WHERE p.user_id = u.id AND p.suspected_at IS NULL) AS passkeys,
       (SELECT count(*) FROM identities i WHERE i.user_id = u.id AND i.issuer = $2 AND i.id IS DISTINCT FROM $3) AS identities
FROM users u WHERE u.id = $1;
