-- name: make_accounts
-- Insert the accounts $1, each with its head.
WITH account AS (
    INSERT INTO accounts (id, name, plan, created_at)
    SELECT id, 'Past ' || id, 'enterprise', now() - interval '5 weeks' FROM unnest($1::uuid[]) AS id RETURNING id
)
INSERT INTO account_heads (account_id) SELECT id FROM account;

-- name: suppress
-- Suppress the addresses number $2 to $3 for each of the accounts $1: one in ten after a complaint, evenly over four weeks.
INSERT INTO suppressions (account_id, address, reason, detail, created_at)
SELECT account, 'person' || number || '@d' || number % 1000 || '.test',
       CASE number % 10 WHEN 0 THEN 'complaint' ELSE 'bounce' END, '550 5.1.1 no such user',
       now() - interval '28 days' * ((hashint8(number)::bigint & 1023) / 1024.0)
FROM unnest($1::uuid[]) AS account CROSS JOIN generate_series($2::bigint, $3::bigint) AS number;

-- name: log_requests
-- Log $2 requests of account $1, evenly over the present day (UTC); one in 100 failed.
INSERT INTO api_requests (id, account_id, method, path, status, microseconds, request_id, error_type)
SELECT (lpad(to_hex(at_ms), 12, '0') || '7' || substr(digest, 1, 3) || '8' || substr(digest, 4, 15))::uuid, $1, 'POST',
       '/v1/emails', CASE number % 100 WHEN 0 THEN 422 ELSE 202 END, 4000, 'req_' || substr(digest, 1, 26),
       CASE number % 100 WHEN 0 THEN 'invalid_request' END
FROM (
    SELECT number, md5(number::text) AS digest,
           (extract(epoch FROM date_trunc('day', now(), 'UTC')) * 1000)::bigint
           + (extract(epoch FROM now() - date_trunc('day', now(), 'UTC')) * 1000)::bigint * number / $2::bigint AS at_ms
    FROM generate_series(1, $2::bigint) AS number
) AS one;

-- name: keep_numbers
-- Let the account log of account $1 go on behind its stored events.
UPDATE account_heads SET seq = (SELECT max(seq) FROM events WHERE account_id = $1) WHERE account_id = $1;

-- name: a_recipient
-- Return an address that account $1 has written to.
SELECT address FROM recipients WHERE account_id = $1 ORDER BY message_id LIMIT 1;
