-- name: logged_accounts
-- The next $2 accounts after $1 that have a log.
SELECT account_id FROM account_heads WHERE account_id > $1 ORDER BY account_id LIMIT $2;
