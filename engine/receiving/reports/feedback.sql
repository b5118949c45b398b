-- name: recipients_of_message
-- Return the recipients of message $1 with its sending domain.
SELECT r.n::int AS n, r.account_id, r.address, m.from_domain
FROM recipients r JOIN messages m ON m.id = r.message_id WHERE r.message_id = $1 AND m.id = $1 ORDER BY r.n;
