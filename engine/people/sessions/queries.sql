-- name: find_session
-- Read the live session with one of the digests $1, the present one first, at time $2, used after $3, with its person and account.
SELECT s.id, s.user_id, s.account_id, s.method, s.created_at, s.used_at, m.role, u.email, u.name, u.display_name,
       u.timezone, u.email_verified_at IS NOT NULL AS email_verified, u.totp_enabled_at IS NOT NULL AS has_totp,
       u.operator_at IS NOT NULL AS operator_confirmed, a.name AS account_name, a.plan, a.agreed_caps,
       a.status AS account_status, s.digest <> ($1::bytea[])[1] AS is_outdated
FROM sessions s
JOIN members m ON m.account_id = s.account_id AND m.user_id = s.user_id
JOIN users u ON u.id = s.user_id
JOIN accounts a ON a.id = s.account_id
WHERE s.digest = ANY ($1::bytea[]) AND s.expires_at > $2 AND s.used_at > $3;

-- name: insert_session
-- Insert session $1 with digest $2 of user $3 in account $4: method $5, address $6, agent $7, created at $8, ends at $9.
INSERT INTO sessions (id, digest, user_id, account_id, method, address, agent, created_at, used_at, expires_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $8, $9);

-- name: touch_session
-- Record a use of session $1 at $2 from address $3.
UPDATE sessions SET used_at = greatest(used_at, $2), address = $3 WHERE id = $1;

-- name: list_sessions
-- List live sessions of user $1 at $2, used after $3, with ids below $5 (null: from the newest), newest first, at most $4.
SELECT s.id, s.account_id, a.name AS account_name, s.method, s.address, s.agent, s.created_at, s.used_at, s.expires_at
FROM sessions s JOIN accounts a ON a.id = s.account_id
WHERE s.user_id = $1 AND s.expires_at > $2 AND s.used_at > $3 AND ($5::uuid IS NULL OR s.id < $5) ORDER BY s.id DESC LIMIT $4;

-- name: redigest_session
-- Set digest $2 of session $1 if it is $3, unless another pepper than that with fingerprint $4 is the present one.
UPDATE sessions SET digest = $2
WHERE id = $1 AND digest = $3 AND NOT EXISTS (SELECT FROM installation WHERE pepper_print <> $4);

-- name: rotate_session
-- Set digest $2 of session $1, unless it has ended at $3.
UPDATE sessions SET digest = $2 WHERE id = $1 AND expires_at > $3 RETURNING id;

-- name: move_session
-- Move session $1 to account $2 with digest $3, unless it has ended at $4.
UPDATE sessions SET account_id = $2, digest = $3 WHERE id = $1 AND expires_at > $4 RETURNING id;

-- name: person_of_session
-- Find the person of the session with one of the digests $1.
SELECT user_id FROM sessions WHERE digest = ANY ($1::bytea[]);

-- name: end_session
-- End the session with one of the digests $1 at $2; returns its id, account and person. Its row stays for a while, for `places_of`,
-- and replaces earlier ended sessions of that address, because scripts may sign in and out often. It gets digest $3,
-- which matches no secret, so that a host with a slow clock does not accept it.
WITH ended AS (
    UPDATE sessions SET expires_at = $2, digest = $3 WHERE digest = ANY ($1::bytea[]) AND expires_at > $2
    RETURNING id, account_id, user_id, address
), before AS (
    DELETE FROM sessions s USING ended e
    WHERE s.user_id = e.user_id AND s.address = e.address AND s.id <> e.id AND s.expires_at <= $2
)
SELECT id, account_id, user_id FROM ended;

-- name: end_one_session
-- Delete live session $2 of user $1 at $3, used after $4, with its address; returns its account.
DELETE FROM sessions WHERE user_id = $1 AND id = $2 AND expires_at > $3 AND used_at > $4 RETURNING account_id;

-- name: end_other_sessions
-- Delete all sessions of user $1 except $2 (null: all), with their addresses, because one may be an attacker's. Returns
-- their accounts, and whether each was live at $3, used after $4.
DELETE FROM sessions WHERE user_id = $1 AND id IS DISTINCT FROM $2
RETURNING account_id, expires_at > $3 AND used_at > $4 AS living;

-- name: forget_sessions
-- Delete up to $3 sessions that ended before $1 or were last used before $2.
DELETE FROM sessions WHERE id IN (SELECT id FROM sessions WHERE expires_at < $1 OR used_at < $2 LIMIT $3);

-- name: remember_place
-- Insert session $1 of user $2 with digest $3, address $4 and agent $5, which ends as it begins, at $6: only for
-- `places_of`. Skips memberships that another transaction has locked, such as one being removed.
INSERT INTO sessions (id, digest, user_id, account_id, method, address, agent, created_at, used_at, expires_at)
SELECT $1, $3, $2, m.account_id, 'mailbox', $4, $5, $6, $6, $6 FROM members m
WHERE m.user_id = $2 ORDER BY m.account_id LIMIT 1 FOR KEY SHARE OF m SKIP LOCKED;

-- name: places_of
-- List the addresses from which user $1 is or was recently signed in.
SELECT DISTINCT address FROM (SELECT address FROM sessions WHERE user_id = $1 ORDER BY used_at DESC LIMIT 50) AS latest;

-- name: living_sessions
-- Read those of the sessions $1 that are live at $2, used after $3, with their accounts.
SELECT id, account_id FROM sessions WHERE id = ANY ($1::uuid[]) AND expires_at > $2 AND used_at > $3;
