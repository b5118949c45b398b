-- name: accounts_named
-- Accounts named $1, ignoring case; oldest first, at most $2.
SELECT id FROM accounts WHERE lower(name) = lower($1) ORDER BY created_at, id LIMIT $2;
