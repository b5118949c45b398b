-- name: count_outcomes
-- Recipients by status, of every account, and how many of them are not at the slow domains $1.
SELECT status, count(*) AS rows, count(*) FILTER (WHERE split_part(address, '@', 2) <> ALL ($1::text[])) AS healthy
FROM recipients GROUP BY status;

-- name: count_accepted
-- Messages stored, and `accepted` events in the logs.
SELECT (SELECT count(*) FROM messages) AS messages, (SELECT count(*) FROM events WHERE type = 'accepted') AS accepted;

-- name: count_tail_events
-- Events that live tails show, of accounts $1.
SELECT count(*) AS rows FROM events WHERE account_id = ANY ($1::uuid[]) AND position('.' IN type) = 0;

-- name: count_posts
-- Webhook posts that were delivered, and those pending at endpoints other than $1.
SELECT (SELECT count(*) FROM webhook_attempts WHERE delivered) AS delivered,
       (SELECT count(*) FROM webhook_queue WHERE webhook_id <> ALL ($1::uuid[])) AS pending;
