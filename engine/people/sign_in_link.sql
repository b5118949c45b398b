-- name: first_owner
-- Read the first owner of account $1 (null: of the oldest account that is not being erased), and whether they have signed
-- in to any account.
SELECT u.id, u.email, u.last_account_id IS NOT NULL AS signed_in FROM members m JOIN users u ON u.id = m.user_id
WHERE m.role = 'owner'
  AND m.account_id = coalesce($1::uuid, (SELECT id FROM accounts WHERE status <> 'closing' ORDER BY id LIMIT 1))
ORDER BY m.created_at, m.user_id LIMIT 1;
