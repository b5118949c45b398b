-- name: account_status
-- Read the status of account $1.
SELECT status FROM accounts WHERE id = $1;
