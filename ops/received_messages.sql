-- name: newest_received
-- List the newest $2 received messages of account $1 (null: all), with the names of their accounts.
SELECT m.id, m.account_id, a.name AS account, m.envelope_from, m.recipient, m.subject, m.size_bytes, m.is_spam, m.spam_score,
       m.action, m.fallback, host(m.remote_ip) AS remote_ip
FROM inbound_messages m JOIN accounts a ON a.id = m.account_id
WHERE ($1::uuid IS NULL OR m.account_id = $1) ORDER BY m.id DESC LIMIT $2;

-- name: owner_of_received
-- Return the account of received message $1.
SELECT account_id FROM inbound_messages WHERE id = $1;
