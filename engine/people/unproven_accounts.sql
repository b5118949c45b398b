-- name: owned_accounts
-- List the accounts that person $1 owns, with their sub-accounts, in the order of locks; none that is being erased.
WITH owned AS (
    SELECT account_id FROM members WHERE user_id = $1 AND role = 'owner'
)
SELECT id, name FROM accounts
WHERE (id IN (SELECT account_id FROM owned) OR parent_id IN (SELECT account_id FROM owned)) AND status <> 'closing'
ORDER BY id;

-- name: other_members
-- List the members of the accounts $2 other than person $1, in the order of locks.
SELECT m.account_id, m.user_id, m.role, u.email FROM members m JOIN users u ON u.id = m.user_id
WHERE m.account_id = ANY ($2::uuid[]) AND m.user_id <> $1 ORDER BY m.user_id, m.account_id;

-- name: live_keys
-- List the keys of the accounts $1 that are neither revoked nor expired.
SELECT account_id, id FROM api_keys
WHERE account_id = ANY ($1::uuid[]) AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > now()) ORDER BY id;

-- name: endpoints
-- List the webhook endpoints of the accounts $1.
SELECT account_id, id FROM webhooks WHERE account_id = ANY ($1::uuid[]) AND status <> 'deleted' ORDER BY id;
