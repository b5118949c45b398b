-- name: list_members
-- List members of account $1, newest first, at most $2, from before the one who joined at $3 (null: from the newest) with
-- id $4 on.
SELECT m.user_id, u.email, coalesce(u.display_name, u.name) AS name, m.role, u.email_verified_at IS NOT NULL AS email_verified,
       u.totp_enabled_at IS NOT NULL AS has_totp, m.created_at AS joined_at
FROM members m JOIN users u ON u.id = m.user_id WHERE m.account_id = $1
  AND ($3::timestamptz IS NULL OR (m.created_at, m.user_id) < ($3, $4::uuid))
ORDER BY m.created_at DESC, m.user_id DESC LIMIT $2;

-- name: read_member
-- Read member $2 of account $1.
SELECT m.user_id, u.email, coalesce(u.display_name, u.name) AS name, m.role, u.email_verified_at IS NOT NULL AS email_verified,
       u.totp_enabled_at IS NOT NULL AS has_totp, m.created_at AS joined_at
FROM members m JOIN users u ON u.id = m.user_id WHERE m.account_id = $1 AND m.user_id = $2;

-- name: lock_person
-- Lock person $1, so that sign-ins and sign-outs wait until this transaction ends.
SELECT id FROM users WHERE id = $1 FOR NO KEY UPDATE;

-- name: lock_member
-- Lock member $2 of account $1, so that sign-ins and role changes wait until this transaction ends.
SELECT user_id FROM members WHERE account_id = $1 AND user_id = $2 FOR UPDATE;

-- name: lock_sessions
-- Lock the sessions of person $2 in account $1.
SELECT id FROM sessions WHERE account_id = $1 AND user_id = $2 ORDER BY id FOR UPDATE;

-- name: member_with_address
-- Find the member of account $1 with address $2.
SELECT m.user_id FROM members m JOIN users u ON u.id = m.user_id WHERE m.account_id = $1 AND u.email = $2;

-- name: count_owners
-- Count the owners of account $1.
SELECT count(*) AS owners FROM members WHERE account_id = $1 AND role = 'owner';

-- name: add_member
-- Add person $2 to account $1 with role $3 at $4; returns no row if they are a member already.
INSERT INTO members (account_id, user_id, role, created_at) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING
RETURNING user_id;

-- name: memberships_below
-- List the sub-accounts of account $1 that person $2 belongs to, with the role there, in the order of locks.
SELECT m.account_id, m.role FROM members m JOIN accounts a ON a.id = m.account_id
WHERE a.parent_id = $1 AND m.user_id = $2 ORDER BY m.account_id;

-- name: set_role
-- Set role $3 of member $2 of account $1.
UPDATE members SET role = $3 WHERE account_id = $1 AND user_id = $2;

-- name: remove_member
-- Remove person $2 from account $1; this deletes their sessions in it.
DELETE FROM members WHERE account_id = $1 AND user_id = $2;

-- name: count_seats
-- Count members of account $1 and invitations to it that are pending at $2.
SELECT (SELECT count(*) FROM members WHERE account_id = $1) AS members,
       (SELECT count(*) FROM invites WHERE account_id = $1 AND expires_at > $2) AS invites;

-- name: list_invites
-- List invitations to account $1 that are pending at $2, newest first, at most $3.
SELECT id, email, role, invited_by, created_at, expires_at FROM invites
WHERE account_id = $1 AND expires_at > $2 ORDER BY id DESC LIMIT $3;

-- name: replace_invite
-- Delete the invitation of address $2 to account $1, pending or expired.
DELETE FROM invites WHERE account_id = $1 AND email = $2 RETURNING id;

-- name: read_invite
-- Read invitation $2 to account $1 if it is pending at $3.
SELECT id, email, role, invited_by, created_at, expires_at FROM invites
WHERE account_id = $1 AND id = $2 AND expires_at > $3;

-- name: renew_invite
-- Give invitation $2 to account $1, pending at $3, token digest $4, valid until $5, by person $6.
UPDATE invites SET digest = $4, expires_at = $5, invited_by = $6
WHERE account_id = $1 AND id = $2 AND expires_at > $3 RETURNING id;

-- name: insert_invite
-- Insert invitation $1 to account $2 of address $3 as $4 with token digest $5, by person $6, at $7, valid until $8.
INSERT INTO invites (id, account_id, email, role, digest, invited_by, created_at, expires_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8);

-- name: open_invite
-- Find the invitation with token digest $1, pending at $2, with the status of its account.
SELECT i.id, i.account_id, i.email, i.role, a.status AS account_status
FROM invites i JOIN accounts a ON a.id = i.account_id WHERE i.digest = $1 AND i.expires_at > $2;

-- name: take_invite
-- Consume invitation $1 at $2; only one of concurrent requests gets a row.
DELETE FROM invites WHERE id = $1 AND expires_at > $2 RETURNING role;

-- name: remove_invite
-- Delete invitation $2 to account $1, pending at $3.
DELETE FROM invites WHERE account_id = $1 AND id = $2 AND expires_at > $3 RETURNING id;

-- name: end_invites_of
-- Delete the invitations to account $1 by person $2 (null: by anybody), except those with the roles $3.
DELETE FROM invites WHERE account_id = $1 AND ($2::uuid IS NULL OR invited_by = $2) AND role <> ALL ($3::text[]) RETURNING id;

-- name: forget_invites
-- Delete up to $2 invitations that expired before $1.
DELETE FROM invites WHERE id IN (SELECT id FROM invites WHERE expires_at < $1 LIMIT $2);
