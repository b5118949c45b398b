-- name: delivered
-- The deliveries of account $1 that have not bounced, at most $2, oldest first.
SELECT r.message_id, r.n, r.address FROM recipients r
WHERE r.account_id = $1 AND r.status = 'delivered' ORDER BY r.message_id, r.n LIMIT $2;

-- name: bounced
-- How many recipients of account $1 have bounced.
SELECT count(*) AS bounced FROM recipients WHERE account_id = $1 AND status = 'bounced';
