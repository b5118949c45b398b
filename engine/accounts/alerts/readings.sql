-- name: outcome_sums
-- Sum the outcomes of accounts $1 over $2 days each: quarter-hours after $3 for one day, else UTC days up to $4.
SELECT n.account_id, coalesce(sum(o.settled), 0)::bigint AS settled, coalesce(sum(o.bounced), 0)::bigint AS bounced,
       coalesce(sum(o.complained), 0)::bigint AS complained
FROM unnest($1::uuid[], $2::int[]) AS n (account_id, days) LEFT JOIN LATERAL (
    SELECT q.settled, q.bounced, q.complained FROM outcome_quarters q
    WHERE n.days = 1 AND q.account_id = n.account_id AND q.quarter > $3
    UNION ALL
    SELECT d.settled, d.bounced, d.complained FROM outcome_days d
    WHERE n.days > 1 AND d.account_id = n.account_id AND d.day > $4::date - n.days
) o ON true
GROUP BY n.account_id;

-- name: drift_sums
-- Sum the drifted and the unanswered records of the domains of accounts $1; accounts without any are left out.
SELECT account_id, sum(records_drifted)::int AS drifted, sum(records_unanswered)::int AS unanswered
FROM domains WHERE account_id = ANY ($1::uuid[]) AND deleted_at IS NULL AND records_drifted + records_unanswered > 0
GROUP BY account_id;

-- name: drifted_domains
-- Return at most $2 domains of each of the accounts $1 with drifted records.
SELECT d.account_id, d.id
FROM unnest($1::uuid[]) AS n (account_id) CROSS JOIN LATERAL (
    SELECT id, account_id FROM domains
    WHERE account_id = n.account_id AND deleted_at IS NULL AND records_drifted > 0 ORDER BY name LIMIT $2
) d;

-- name: failing_webhooks
-- List the active endpoints of accounts $1 with at least $2 failures in a row, at most $3 per account, with their number.
SELECT account_id, id, url, failing_since, count FROM (
    SELECT account_id, id, url, failing_since, (count(*) OVER (PARTITION BY account_id))::integer AS count,
           row_number() OVER (PARTITION BY account_id ORDER BY failing_since, id) AS place
    FROM webhooks WHERE account_id = ANY ($1::uuid[]) AND status = 'active' AND failures >= $2
) found WHERE place <= $3 ORDER BY account_id, place;
