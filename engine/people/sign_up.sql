-- name: sign_up_of
-- Read when and from where person $1 signed up, and the name of their first account.
SELECT u.created_at, u.signed_up_from, (
    SELECT a.name FROM members m JOIN accounts a ON a.id = m.account_id WHERE m.user_id = u.id
    ORDER BY m.created_at, m.account_id LIMIT 1
) AS account_name FROM users u WHERE u.id = $1;
