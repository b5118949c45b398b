-- name: provider_sums
-- Sum the outcomes of account $1 from day $2 to day $3 by provider, those of day $3 apart, with the histograms one behind
-- another. Of streams $4 and sending domains $5 (null: all).
SELECT provider, day = $3 AS is_last, sum(delivered)::bigint AS delivered, sum(bounced)::bigint AS bounced,
       sum(failed)::bigint AS failed, sum(complained)::bigint AS complained, string_agg(times, '') AS times
FROM delivery_providers
WHERE account_id = $1 AND day BETWEEN $2 AND $3
  AND ($4::text[] IS NULL OR stream = ANY ($4)) AND ($5::text[] IS NULL OR from_domain = ANY ($5))
GROUP BY provider, is_last;

-- name: deferred_domains
-- Count the deliveries of account $1 that wait after a deferred attempt by recipients' domain, the most first, at most
-- $4 domains, with the oldest message of each; `total` counts those of all domains. Of streams $2 and sending domains $3
-- (null: all).
SELECT q.domain, count(*) AS messages, min(q.message_id::text)::uuid AS oldest, sum(count(*)) OVER ()::bigint AS total
FROM queue q
WHERE q.account_id = $1 AND q.attempts > 0 AND ($3::text[] IS NULL OR q.from_domain = ANY ($3))
  AND ($2::text[] IS NULL OR EXISTS (SELECT 1 FROM messages m WHERE m.id = q.message_id AND m.stream = ANY ($2)))
GROUP BY q.domain ORDER BY messages DESC, q.domain LIMIT $4;

-- name: last_deferrals
-- Return when messages $2 of account $1 to domains $3 were deferred first, and the detail of the last time. Their events
-- have ids from $4 on.
SELECT n.domain, min(e.occurred_at) AS since, (array_agg(e.payload ORDER BY e.seq DESC))[1] AS payload
FROM unnest($2::uuid[], $3::text[]) AS n (message_id, domain)
JOIN events e ON e.message_id = n.message_id AND e.id >= $4 AND e.account_id = $1 AND e.type = 'deferred'
    AND domain_of(nullif(e.payload, '')::jsonb->'detail'->>'recipient') = n.domain
GROUP BY n.domain;
