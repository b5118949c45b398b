-- name: find_suppressed
-- Which of the pairs of accounts $1 and canonical addresses $2 are suppressed.
SELECT s.account_id, s.address, s.reason
FROM unnest($1::uuid[], $2::text[]) AS n (account_id, address)
JOIN suppressions s ON s.account_id = n.account_id AND s.address = n.address;

-- name: add_suppressions
-- Suppress addresses $2 of accounts $1 for reasons $3, caused by messages $4 with details $5. A complaint
-- stands above every other reason; otherwise the first reason stays.
INSERT INTO suppressions (account_id, address, reason, message_id, detail)
SELECT DISTINCT ON (account_id, address) account_id, address, reason, message_id, detail
FROM unnest($1::uuid[], $2::text[], $3::text[], $4::uuid[], $5::text[])
     AS n (account_id, address, reason, message_id, detail)
ON CONFLICT (account_id, address) DO UPDATE
SET reason = excluded.reason, message_id = excluded.message_id, detail = excluded.detail
WHERE excluded.reason = 'complaint' AND suppressions.reason <> 'complaint'
RETURNING account_id, address, reason;
