-- name: find_session
-- The living session with digest $1 at time $2, used at $3 or later, with its person and account.
SELECT s.id, s.user_id, s.account_id, s.created_at, s.used_at, m.role, u.email, u.name, u.display_name,
       u.email_verified_at IS NOT NULL AS email_verified, u.totp_enabled_at IS NOT NULL AS has_totp,
       a.name AS account_name, a.plan, a.status AS account_status
FROM sessions s
JOIN members m ON m.account_id = s.account_id AND m.user_id = s.user_id
JOIN users u ON u.id = s.user_id
JOIN accounts a ON a.id = s.account_id
WHERE s.digest = $1 AND s.expires_at > $2 AND s.used_at > $3;

-- name: insert_session
-- Session $1 with digest $2 of user $3 on account $4, opened by $5 from address $6 with agent $7 at $8, ending at $9.
INSERT INTO sessions (id, digest, user_id, account_id, method, address, agent, created_at, used_at, expires_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $8, $9);

-- name: touch_session
-- Session $1 is used at $2 from address $3.
UPDATE sessions SET used_at = greatest(used_at, $2), address = $3 WHERE id = $1;

-- name: list_sessions
-- Living sessions of user $1 at $2, used at $3 or later, the last used first, at most $4.
SELECT s.id, s.account_id, a.name AS account_name, s.method, s.address, s.agent, s.created_at, s.used_at, s.expires_at
FROM sessions s JOIN accounts a ON a.id = s.account_id
WHERE s.user_id = $1 AND s.expires_at > $2 AND s.used_at > $3 ORDER BY s.used_at DESC, s.id DESC LIMIT $4;

-- name: rotate_session
-- Session $1, unless it has ended at $3, goes on under digest $2.
UPDATE sessions SET digest = $2 WHERE id = $1 AND expires_at > $3 RETURNING id;

-- name: move_session
-- Session $1, unless it has ended at $4, goes on under digest $3 on account $2.
UPDATE sessions SET account_id = $2, digest = $3 WHERE id = $1 AND expires_at > $4 RETURNING id;

-- name: person_of_session
-- Whose the session with digest $1 is.
SELECT user_id FROM sessions WHERE digest = $1;

-- name: end_session
-- End the session with digest $1 at $2; its id, account and person. Its row stays for a while, for `places_of`, in place of
-- those that ended at its address before: a script may sign in and out all day. It keeps digest $3, which no secret has: a
-- host whose clock is behind, or is set back, must not find it living.
WITH ended AS (
    UPDATE sessions SET expires_at = $2, digest = $3 WHERE digest = $1 AND expires_at > $2
    RETURNING id, account_id, user_id, address
), before AS (
    DELETE FROM sessions s USING ended e
    WHERE s.user_id = e.user_id AND s.address = e.address AND s.id <> e.id AND s.expires_at <= $2
)
SELECT id, account_id, user_id FROM ended;

-- name: end_one_session
-- End session $2 of user $1, which lives at $3, used at $4 or later, and forget where it was; its account.
DELETE FROM sessions WHERE user_id = $1 AND id = $2 AND expires_at > $3 AND used_at > $4 RETURNING account_id;

-- name: end_other_sessions
-- End all sessions of user $1 but session $2 (null: all of them), and forget where they were: one of them may have been
-- a stranger's. Their accounts, and whether each lived at $3, used at $4 or later.
DELETE FROM sessions WHERE user_id = $1 AND id IS DISTINCT FROM $2
RETURNING account_id, expires_at > $3 AND used_at > $4 AS living;

-- name: forget_sessions
-- Drop up to $3 sessions that ended before $1 or were last used before $2.
DELETE FROM sessions WHERE id IN (SELECT id FROM sessions WHERE expires_at < $1 OR used_at < $2 LIMIT $3);

-- name: remember_place
-- Session $1 of user $2 with digest $3, from address $4 with agent $5, that ends as it begins at $6: only for `places_of`.
-- A membership that somebody is taking away waits for nobody here, and is passed over.
INSERT INTO sessions (id, digest, user_id, account_id, method, address, agent, created_at, used_at, expires_at)
SELECT $1, $3, $2, m.account_id, 'mailbox', $4, $5, $6, $6, $6 FROM members m
WHERE m.user_id = $2 ORDER BY m.account_id LIMIT 1 FOR KEY SHARE OF m SKIP LOCKED;

-- name: places_of
-- From where user $1 is, or was lately, signed in.
SELECT DISTINCT address FROM (SELECT address FROM sessions WHERE user_id = $1 ORDER BY used_at DESC LIMIT 50) AS latest;

-- name: living_sessions
-- Which of the sessions $1 live at $2, used at $3 or later, and at which account.
SELECT id, account_id FROM sessions WHERE id = ANY ($1::uuid[]) AND expires_at > $2 AND used_at > $3;
