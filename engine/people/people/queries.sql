-- name: insert_owner
-- Insert user $1 with email $2, password hash $3, verified at $4, signed up from $6, as owner of account $5.
WITH person AS (
    INSERT INTO users (id, email, password_hash, email_verified_at, signed_up_from, created_at)
    VALUES ($1, $2, $3, $4, $6, now()) RETURNING id
)
INSERT INTO members (account_id, user_id, role, created_at) SELECT $5, id, 'owner', now() FROM person;

-- name: find_person
-- Find the person with address $1.
SELECT id, email, name, password_hash, email_verified_at, verified_by_link, totp_enabled_at IS NOT NULL AS has_totp,
       operator_at IS NOT NULL AS is_operator, created_at
FROM users WHERE email = $1;

-- name: read_person
-- Read person $1.
SELECT id, email, name, password_hash, email_verified_at, verified_by_link, totp_enabled_at IS NOT NULL AS has_totp,
       operator_at IS NOT NULL AS is_operator, created_at
FROM users WHERE id = $1;

-- name: lock_person
-- Lock person $1 against changes until this transaction ends; foreign keys to the row stay possible.
SELECT id, email, name, password_hash, email_verified_at, verified_by_link, totp_enabled_at IS NOT NULL AS has_totp,
       operator_at IS NOT NULL AS is_operator, created_at
FROM users WHERE id = $1 FOR NO KEY UPDATE;

-- name: set_password
-- Set password hash $2 of person $1 at $3.
UPDATE users SET password_hash = $2, password_changed_at = $3 WHERE id = $1;

-- name: rehash_password
-- Replace password hash $2 of person $1 by $3, if it has not changed.
UPDATE users SET password_hash = $3 WHERE id = $1 AND password_hash = $2;

-- name: memberships
-- List the accounts of person $1 that are not being erased: the one last signed in to first, then the newest.
SELECT m.account_id, a.name, a.plan, a.status, m.role FROM members m JOIN accounts a ON a.id = m.account_id
JOIN users u ON u.id = m.user_id
WHERE m.user_id = $1 AND a.status <> 'closing'
ORDER BY (m.account_id = u.last_account_id) DESC NULLS LAST, m.created_at DESC, m.account_id DESC;

-- name: signed_in_to
-- Record that person $1 signed in to account $2.
UPDATE users SET last_account_id = $2 WHERE id = $1 AND last_account_id IS DISTINCT FROM $2;

-- name: spend_challenge
-- Consume the challenge with digest $1, which expires at $2; returns no row if it was consumed before.
INSERT INTO spent_challenges (digest, expires_at) VALUES ($1, $2) ON CONFLICT DO NOTHING RETURNING digest;

-- name: forget_challenges
-- Delete up to $2 challenges that expired before $1.
DELETE FROM spent_challenges WHERE digest IN (SELECT digest FROM spent_challenges WHERE expires_at < $1 LIMIT $2);

-- name: insert_person
-- Insert person $1 with address $2, confirmed at $4, and password hash $3.
INSERT INTO users (id, email, password_hash, email_verified_at, password_changed_at, created_at) VALUES ($1, $2, $3, $4, $4, now());

-- name: confirm_address
-- Mark the address of person $1 as verified at $2, by more than a link.
UPDATE users SET email_verified_at = coalesce(email_verified_at, $2), verified_by_link = false, signed_up_from = NULL
WHERE id = $1;

-- name: set_operator
-- Confirm person $1 as an operator at $2 (null: no longer).
UPDATE users SET operator_at = $2 WHERE id = $1;

-- name: operators_named
-- List the people with the addresses $1, with what they need to be operators.
SELECT email, email_verified_at IS NOT NULL AS email_verified, operator_at IS NOT NULL AS is_operator
FROM users WHERE email = ANY ($1::text[]);

-- name: owners_of
-- List the owners of account $1.
SELECT u.id, u.email FROM members m JOIN users u ON u.id = m.user_id WHERE m.account_id = $1 AND m.role = 'owner';

-- name: managers_of
-- List the owners and admins of account $1; those of a sub-account are its parent's.
SELECT u.id, u.email FROM accounts a
JOIN members m ON m.account_id = coalesce(a.parent_id, a.id) AND m.role IN ('owner', 'admin')
JOIN users u ON u.id = m.user_id WHERE a.id = $1 ORDER BY u.id;

-- name: approvers_of
-- List at most $2 people to tell of sends of account $1 that wait for approval: its members, and the owners and admins of
-- its parent.
SELECT DISTINCT u.id, u.email FROM accounts a
JOIN members m ON m.account_id = a.id OR m.account_id = a.parent_id AND m.role IN ('owner', 'admin')
JOIN users u ON u.id = m.user_id WHERE a.id = $1 ORDER BY u.id LIMIT $2;

-- name: read_profile
-- Read the profile of person $1.
SELECT id, email, email_verified_at, name, display_name, timezone, signature, signature_addresses
FROM users WHERE id = $1;

-- name: set_profile
-- Set the profile of person $1: name $2, display name $3, time zone $4, signature $5, its addresses $6.
UPDATE users SET name = $2, display_name = $3, timezone = $4, signature = $5, signature_addresses = $6 WHERE id = $1;
