-- name: newest_messages
-- The newest messages of all accounts, at most $2; only those with status $1 unless it is null.
SELECT m.id, m.account_id, a.name AS account, m.status, m.sender, m.subject, m.delivered_at, ARRAY(
    SELECT r.address FROM (SELECT * FROM recipients WHERE message_id = m.id OFFSET 0) r
    WHERE r.account_id = m.account_id ORDER BY r.n) AS recipients
FROM messages m JOIN accounts a ON a.id = m.account_id
WHERE $1::text IS NULL OR m.status = $1
ORDER BY m.id DESC LIMIT $2;

-- name: owner_of_message
-- The account that owns message $1.
SELECT account_id FROM messages WHERE id = $1;
