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

-- name: forwards_among
-- Return those of the messages $1, with ids from $2 to $3, that forward a received message and have bounced.
SELECT id, metadata->>'inbound_message_id' AS received FROM messages
WHERE id = ANY ($1::uuid[]) AND id BETWEEN $2 AND $3 AND source = 'forward' AND status = 'bounced';

-- name: look_at_forwards
-- Queue the received messages $1 whose last forwards, the sent messages $2, have bounced: the forwarder looks at the
-- status of the sent message. A message that is being forwarded again stays as it is queued.
INSERT INTO inbound_forwards (message_id, account_id, forward_to, due_at, sent_as)
SELECT m.id, m.account_id, r.address, now(), sent.id
FROM unnest($1::uuid[], $2::uuid[]) AS sent (received, id)
JOIN inbound_messages m ON m.id = sent.received AND m.forwarded_as = sent.id
JOIN recipients r ON r.message_id = sent.id AND r.n = 0
ON CONFLICT (message_id) DO NOTHING;
