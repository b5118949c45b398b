-- name: count_pending_posts
-- How many posts to endpoints of accounts $1 are pending.
SELECT count(*) AS pending FROM webhook_queue WHERE account_id = ANY($1::uuid[]);

-- name: count_attempts
-- Attempts recorded at endpoints of accounts $1, and how many of them were the first of their delivery.
SELECT count(*) AS made, count(*) FILTER (WHERE attempt = 1) AS first
FROM webhook_attempts a JOIN webhooks w ON w.id = a.webhook_id WHERE w.account_id = ANY($1::uuid[]);
