-- name: newest_addresses
-- The newest claimed addresses of account $1 (null: of all accounts), at most $2.
SELECT i.id, i.account_id, a.name AS account, i.address, i.label, i.enabled,
       i.domain_id IS NULL OR d.receives_since IS NOT NULL AS receives, i.created_at, i.last_received_at
FROM inbound_addresses i JOIN accounts a ON a.id = i.account_id LEFT JOIN domains d ON d.id = i.domain_id
WHERE $1::uuid IS NULL OR i.account_id = $1 ORDER BY i.id DESC LIMIT $2;

-- name: newest_routes
-- The newest inbound routes of account $1 (null: of all accounts), at most $2.
SELECT r.id, r.account_id, a.name AS account, coalesce(i.address, d.name) AS target, r.action, r.webhook_id, r.forward_to,
       r.enabled, r.created_at
FROM inbound_routes r JOIN accounts a ON a.id = r.account_id
LEFT JOIN inbound_addresses i ON i.id = r.address_id LEFT JOIN domains d ON d.id = r.domain_id
WHERE $1::uuid IS NULL OR r.account_id = $1 ORDER BY r.id DESC LIMIT $2;

-- name: newest_received
-- List the newest $2 received messages of account $1 (null: all), with the names of their accounts.
SELECT m.id, m.account_id, a.name AS account, m.envelope_from, m.recipient, m.subject, m.size_bytes, m.is_spam, m.spam_score,
       m.action, m.fallback, host(m.remote_ip) AS remote_ip
FROM inbound_messages m JOIN accounts a ON a.id = m.account_id
WHERE ($1::uuid IS NULL OR m.account_id = $1) ORDER BY m.id DESC LIMIT $2;

-- name: owner_of_received
-- Return the account of received message $1.
SELECT account_id FROM inbound_messages WHERE id = $1;
