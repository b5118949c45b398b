-- name: recipients_of
-- Return the recipients of messages $1, whose ids lie between $2 and $3.
SELECT message_id, n::int AS n, account_id, address, status FROM recipients
WHERE message_id = ANY ($1::uuid[]) AND message_id BETWEEN $2 AND $3;

-- name: lock_recipients
-- Lock and return the recipients of messages $1, whose ids lie between $2 and $3.
SELECT message_id, n::int AS n, account_id, address, status FROM recipients
WHERE message_id = ANY ($1::uuid[]) AND message_id BETWEEN $2 AND $3
ORDER BY message_id, n FOR NO KEY UPDATE;

-- name: deliveries_of
-- Return when messages $1 were delivered to which recipients. No event of theirs has an id below $2.
SELECT message_id, occurred_at, payload FROM events
WHERE message_id = ANY ($1::uuid[]) AND id >= $2 AND type = 'delivered';

-- name: mark_bounced
-- Set recipients (messages $1, places $2) to bounced with last response $3; message ids lie between $4 and $5.
UPDATE recipients r SET status = 'bounced', last_response = n.response
FROM unnest($1::uuid[], $2::smallint[], $3::text[]) AS n (message_id, n, response)
WHERE r.message_id = n.message_id AND r.n = n.n AND r.message_id BETWEEN $4 AND $5 AND r.status = 'delivered';

-- name: mark_messages
-- Set messages $1 to status $2 where the present one is among $3, comma-separated; ids lie between $4 and $5.
UPDATE messages m SET status = n.status
FROM unnest($1::uuid[], $2::text[], $3::text[]) AS n (id, status, moves)
WHERE m.id = n.id AND m.status = ANY (string_to_array(n.moves, ',')) AND m.id BETWEEN $4 AND $5;

-- name: count_bounces
-- Add the bounced recipients $3 to accounts $1 on days $2.
INSERT INTO account_days AS d (account_id, day, bounced)
SELECT account_id, day, bounced FROM unnest($1::uuid[], $2::date[], $3::int[]) AS n (account_id, day, bounced)
ORDER BY account_id, day
ON CONFLICT (account_id, day) DO UPDATE SET bounced = d.bounced + excluded.bounced;

-- name: take_back_deliveries
-- Subtract the delivered recipients $3 from accounts $1 on days $2: each recipient counts as settled once.
UPDATE account_days d SET delivered = greatest(0, d.delivered - n.delivered)
FROM unnest($1::uuid[], $2::date[], $3::int[]) AS n (account_id, day, delivered)
WHERE d.account_id = n.account_id AND d.day = n.day;
