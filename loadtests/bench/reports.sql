-- name: delivered
-- The deliveries of account $1 that have not bounced, at most $2, oldest first.
SELECT r.message_id, r.n, r.address FROM recipients r
WHERE r.account_id = $1 AND r.status = 'delivered' ORDER BY r.message_id, r.n LIMIT $2;

-- name: bounced
-- How many recipients of account $1 have bounced.
SELECT count(*) AS bounced FROM recipients WHERE account_id = $1 AND status = 'bounced';

-- name: excuse
-- Keep the rule on bounce rates from suspending account $1: outcomes of mail accepted before $2 do not count.
INSERT INTO account_standings (account_id, pardoned_at) VALUES ($1, $2)
ON CONFLICT (account_id) DO UPDATE SET pardoned_at = excluded.pardoned_at;
