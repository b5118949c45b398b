-- name: find_suppressed
-- Find the suppressed ones among the pairs of accounts $1 and canonical addresses $2, erased addresses by their digests.
SELECT s.account_id, s.address, s.reason
FROM unnest($1::uuid[], $2::text[]) AS n (account_id, address)
JOIN suppressions s ON s.account_id = n.account_id AND s.address = n.address
UNION ALL
SELECT n.account_id, n.address, e.reason
FROM unnest($1::uuid[], $2::text[]) AS n (account_id, address)
CROSS JOIN LATERAL (SELECT key FROM erasure_keys WHERE account_id = n.account_id OFFSET 0) k
JOIN erased_suppressions e ON e.account_id = n.account_id AND e.digest = address_digest(k.key, n.address);

-- name: add_suppressions
-- Suppress addresses $2 of accounts $1 for reasons $3, caused by messages $4 with details $5. The stronger of two
-- reasons wins (rules.STRENGTH). Returns the rows that are new or changed.
INSERT INTO suppressions (account_id, address, reason, message_id, detail, created_at)
SELECT DISTINCT ON (account_id, address) account_id, address, reason, message_id, detail, clock_timestamp()
FROM unnest($1::uuid[], $2::text[], $3::text[], $4::uuid[], $5::text[])
     AS n (account_id, address, reason, message_id, detail)
ON CONFLICT (account_id, address) DO UPDATE
SET reason = excluded.reason, message_id = excluded.message_id, detail = excluded.detail
WHERE array_position('{unsubscribe,manual,bounce,complaint}'::text[], excluded.reason)
    > array_position('{unsubscribe,manual,bounce,complaint}'::text[], suppressions.reason)
RETURNING account_id, address, reason;

-- name: kinds_of
-- Read the streams and sources of messages $1; $2 and $3 bound the ids for partition pruning.
SELECT id, stream, source FROM messages WHERE id = ANY($1::uuid[]) AND id BETWEEN $2 AND $3;

-- name: list_suppressions
-- List suppressions of account $1 before position ($2, $3) in the order of time and address, newest first, at most $4.
-- Null disables a filter: reason $5, patterns $6 (any of them, in the address). The page is found in the index alone: of
-- 100,000 suppressions a search reads 1,000 blocks, with their rows 2,400 in places all over the table.
SELECT s.address, s.reason, s.detail, s.message_id, s.created_at
FROM (SELECT created_at, address FROM suppressions
      WHERE account_id = $1 AND (created_at, address) < ($2::timestamptz, $3::text)
        AND ($5::text IS NULL OR reason = $5)
        AND ($6::text[] IS NULL OR address LIKE ANY ($6))
      ORDER BY created_at DESC, address DESC
      LIMIT $4) page
JOIN suppressions s ON s.account_id = $1 AND s.address = page.address
ORDER BY page.created_at DESC, page.address DESC;

-- name: read_suppressions
-- Read the suppressions of account $1 among the canonical addresses $2, erased addresses by their digests.
SELECT address, reason, detail, message_id, created_at
FROM suppressions WHERE account_id = $1 AND address = ANY ($2::text[])
UNION ALL
SELECT n.address, e.reason, NULL, NULL, e.created_at
FROM unnest($2::text[]) AS n (address)
CROSS JOIN LATERAL (SELECT key FROM erasure_keys WHERE account_id = $1 OFFSET 0) k
JOIN erased_suppressions e ON e.account_id = $1 AND e.digest = address_digest(k.key, n.address)
WHERE NOT EXISTS (SELECT FROM suppressions s WHERE s.account_id = $1 AND s.address = n.address);

-- name: put_suppressions
-- Suppress addresses $2 of account $1 for reasons $3 since $4. A stored row keeps its time and loses the message and
-- detail of its old reason.
INSERT INTO suppressions (account_id, address, reason, created_at)
SELECT $1, n.address, n.reason, $4 FROM unnest($2::text[], $3::text[]) AS n (address, reason)
ON CONFLICT (account_id, address) DO UPDATE SET reason = excluded.reason, message_id = NULL, detail = NULL;

-- name: delete_suppression
-- Delete the suppression of address $2 of account $1, and its digest after an erasure.
WITH digest AS (
    DELETE FROM erased_suppressions e USING erasure_keys k
    WHERE k.account_id = $1 AND e.account_id = $1 AND e.digest = address_digest(k.key, $2)
)
DELETE FROM suppressions WHERE account_id = $1 AND address = $2;
