-- fragment: of_account
-- Bounces of account $1 with numbers below $2 in the period $9 to $10 (null: without bound), newest first. Erased events have
-- no payload.
SELECT e.id, e.seq, e.type, e.message_id, e.occurred_at, e.payload FROM events e
WHERE e.account_id = $1 AND e.type IN ('bounced', 'failed') AND e.seq < $2 AND e.payload IS NOT NULL
  AND ($9::timestamptz IS NULL OR e.occurred_at >= $9) AND ($10::timestamptz IS NULL OR e.occurred_at < $10)
ORDER BY e.seq DESC

-- fragment: filters
-- Conditions on a bounce `b` and its message `m`. Null disables each: type $3, class $4, scope $5, domain of the recipient $6,
-- sending domains $7, streams $8.
($3::text IS NULL OR b.type = $3)
  AND ($4::text IS NULL OR b.payload::jsonb -> 'detail' ->> 'class' = $4)
  AND ($5::text IS NULL OR b.payload::jsonb -> 'detail' ->> 'scope' = $5)
  AND ($6::text IS NULL OR domain_of(lower(b.payload::jsonb -> 'detail' ->> 'recipient')) = $6)
  AND ($7::text[] IS NULL OR m.from_domain = ANY ($7)) AND ($8::text[] IS NULL OR m.stream = ANY ($8))

-- name: range_of_page
-- Return how many of the next $11 bounces there are, and the lowest number among them. The filters $3 to $8 do not matter.
SELECT count(*) AS events, min(b.seq) AS lowest FROM (
    SELECT seq, $3::text, $4::text, $5::text, $6::text, $7::text[], $8::text[] FROM (:of_account LIMIT $11) found) b;

-- name: list_bounces
-- List at most $12 bounces that match the filters among the next $11, newest first.
SELECT b.id, b.seq, b.type, b.message_id, b.occurred_at, b.payload, m.from_domain, m.stream
FROM (:of_account LIMIT $11) b LEFT JOIN messages m ON m.id = b.message_id
WHERE :filters
ORDER BY b.seq DESC LIMIT $12;

-- name: count_classes
-- Count the next $11 bounces that match the filters by class and scope, most first.
SELECT coalesce(b.detail ->> 'class', 'unknown') AS category, b.detail ->> 'scope' AS scope, count(*) AS bounces,
       count(*) FILTER (WHERE b.detail ->> 'suppressed' = 'true') AS suppressed, max(b.occurred_at) AS last_at,
       (array_agg(b.detail ->> 'diagnostic' ORDER BY b.seq DESC))[1] AS diagnostic
FROM (
    SELECT b.seq, b.occurred_at, b.payload::jsonb -> 'detail' AS detail
    FROM (:of_account LIMIT $11) b LEFT JOIN messages m ON m.id = b.message_id
    WHERE :filters) b
GROUP BY 1, 2 ORDER BY 3 DESC, 1, 2;

-- name: messages_to
-- Return the ids of the newest $3 messages of account $1 to the address $2 (lower case).
SELECT DISTINCT message_id FROM (
    SELECT message_id FROM recipients WHERE account_id = $1 AND lower(address) = $2
    ORDER BY message_id DESC LIMIT $3) found
ORDER BY message_id DESC;

-- name: history_of
-- List the events of the messages $3, with ids from $4, of account $1 that concern the address $2 (lower case), newest first,
-- at most $5.
SELECT e.id, e.seq, e.type, e.message_id, e.occurred_at, e.payload, m.from_domain, m.stream
FROM (SELECT * FROM events WHERE message_id = ANY ($3::uuid[]) AND id >= $4 OFFSET 0) e
LEFT JOIN messages m ON m.id = e.message_id
WHERE e.account_id = $1 AND e.payload IS NOT NULL
  AND e.type IN ('delivered', 'deferred', 'bounced', 'failed', 'complained', 'rejected', 'suppressed')
  AND $2 IN (lower(e.payload::jsonb -> 'detail' ->> 'recipient'), lower(e.payload::jsonb -> 'detail' ->> 'address'))
ORDER BY e.seq DESC LIMIT $5;

-- name: unexplained_until
-- Return those of the pairs of accounts $1 and addresses $2 (lower case) that refused one of their oldest messages for no
-- given reason until $3. A bounce that a co-recipient may have written does not count.
SELECT n.account_id, n.address FROM unnest($1::uuid[], $2::text[]) AS n (account_id, address)
WHERE EXISTS (
    SELECT FROM (
        SELECT message_id FROM recipients r
        WHERE r.account_id = n.account_id AND lower(r.address) = n.address AND r.status = 'bounced'
        ORDER BY r.message_id LIMIT 100) m
    JOIN events e ON e.message_id = m.message_id
     AND account_key(e.account_id, bounce_scope(e.payload)) = account_key(n.account_id, 'recipient')
    WHERE e.account_id = n.account_id AND e.type = 'bounced' AND e.occurred_at <= $3 AND e.payload IS NOT NULL
      AND lower(e.payload::jsonb -> 'detail' ->> 'recipient') = n.address
      AND e.payload::jsonb -> 'detail' @> '{"class": "mailbox_unavailable", "scope": "recipient", "suppressed": false}'
      AND NOT e.payload::jsonb -> 'detail' ? 'unverified');
