-- name: family
-- Return account $1, its parent and its sub-accounts, in the order of ids.
SELECT a.id, a.parent_id, a.name, a.status FROM accounts a
WHERE a.id = $1 OR a.parent_id = $1 OR a.id = (SELECT parent_id FROM accounts WHERE id = $1)
ORDER BY a.id;

-- name: lay
-- Suspend accounts $1 for cause $2 with reason $3 from $4 on; an existing cause gets the new reason.
INSERT INTO suspensions (account_id, cause, reason, created_at)
SELECT id, $2, $3, $4 FROM unnest($1::uuid[]) AS n (id)
ON CONFLICT (account_id, cause) DO UPDATE SET reason = excluded.reason;

-- name: lift
-- Delete the causes $2 of accounts $1.
DELETE FROM suspensions WHERE account_id = ANY ($1::uuid[]) AND cause = ANY ($2::text[]) RETURNING account_id, cause;

-- name: follow
-- Set the status of accounts $1 from their causes and return those that changed. The status `closing` stays.
UPDATE accounts a SET status = n.status
FROM (SELECT id, CASE WHEN EXISTS (SELECT FROM suspensions s WHERE s.account_id = n.id) THEN 'suspended' ELSE 'active' END AS status
      FROM unnest($1::uuid[]) AS n (id)) n
WHERE a.id = n.id AND a.status IN ('active', 'suspended') AND a.status <> n.status
RETURNING a.id, a.status;

-- name: active_causes
-- Return the causes of account $1, the oldest first.
SELECT cause, reason, created_at FROM suspensions WHERE account_id = $1 ORDER BY created_at, cause;

-- name: hold_mail
-- Put hold $2 on the queued mail of account $1, public id $3, with reason $4, unless the operator holds it already.
WITH laid AS (
    INSERT INTO holds (id, kind, target, reason, created_at) VALUES ($2, 'account', $3, $4, now())
    ON CONFLICT (kind, target) WHERE NOT ended DO NOTHING RETURNING id
)
INSERT INTO account_standings (account_id, hold_id) SELECT $1, id FROM laid
ON CONFLICT (account_id) DO UPDATE SET hold_id = excluded.hold_id;

-- name: release_mail
-- End the hold that the suspension of account $1 created.
WITH was AS MATERIALIZED (
    SELECT account_id, hold_id FROM account_standings WHERE account_id = $1 AND hold_id IS NOT NULL
), ended AS (
    UPDATE holds SET ended = true WHERE id = (SELECT hold_id FROM was)
)
UPDATE account_standings s SET hold_id = NULL FROM was WHERE s.account_id = was.account_id;

-- name: pardon
-- Ignore the outcomes of account $1 up to $2, and later outcomes of mail accepted before.
WITH figures AS (
    DELETE FROM outcome_quarters WHERE account_id = $1
), days AS (
    DELETE FROM outcome_days WHERE account_id = $1
), sources AS (
    DELETE FROM complaint_sources WHERE account_id = $1
)
INSERT INTO account_standings (account_id, judged_seq, pardoned_at)
SELECT account_id, seq, $2 FROM account_heads WHERE account_id = $1
ON CONFLICT (account_id) DO UPDATE SET judged_seq = excluded.judged_seq, pardoned_at = excluded.pardoned_at;

-- name: owners_of
-- Return the addresses of the owners of account $1, or of its parent account.
SELECT u.email FROM accounts a JOIN members m ON m.account_id = coalesce(a.parent_id, a.id) AND m.role = 'owner'
JOIN users u ON u.id = m.user_id WHERE a.id = $1 ORDER BY u.id;

-- name: is_platform
-- Return account $1 if it is the platform account.
SELECT account_id FROM platform WHERE account_id = $1;

-- name: open_standings
-- Create the row of figures for every account that has a log and no such row.
INSERT INTO account_standings (account_id)
SELECT h.account_id FROM account_heads h JOIN accounts a ON a.id = h.account_id AND a.status NOT IN ('closing', 'moving')
WHERE h.seq > 0 AND NOT EXISTS (SELECT 1 FROM account_standings s WHERE s.account_id = h.account_id)
ON CONFLICT DO NOTHING;

-- name: count_outcomes
-- Add the outcomes of at most $1 logs, at most $2 events of each, to their quarter-hours and days: events with ids from
-- $3 on. Bounces that refuse the service's own servers, and simulated mail, do not count (the compared text contains quotes,
-- which JSON strings escape). A late bounce does not count as settled: its delivery did. Of complaints
-- with an authenticated author it also stores the last quarter-hour by reporter and domain of the recipient. Subdomains are
-- free, so reporters are told apart by the last two labels of their domains; under a suffix such as co.uk several count as
-- one. Returns how many logs were read, and how many of them have more. The limit keeps the planner walking along the log:
-- with the other conditions alone it reads all outcomes of any message.
WITH due AS MATERIALIZED (
    SELECT s.account_id, s.judged_seq AS after, least(h.seq, s.judged_seq + $2::bigint) AS upto, h.seq AS tip,
           uuid7_floor((extract(epoch FROM coalesce(s.pardoned_at, '1970-01-01 00:00Z')) * 1000)::bigint) AS forgiven
    FROM account_standings s JOIN account_heads h ON h.account_id = s.account_id
    WHERE h.seq > s.judged_seq
    ORDER BY h.seq - s.judged_seq DESC, s.account_id LIMIT $1 FOR NO KEY UPDATE OF s SKIP LOCKED
), seen AS (
    SELECT due.account_id, floor(extract(epoch FROM e.occurred_at) / 900)::integer AS quarter, e.type,
           CASE WHEN e.type = 'complained' AND e.payload <> '' THEN e.payload::jsonb -> 'detail' END AS complaint,
           e.type = 'bounced' AND position('"late":true' IN e.payload) > 0 AS late  -- settled when it was delivered
    FROM due CROSS JOIN LATERAL (
        SELECT type, occurred_at, coalesce(payload, '') AS payload, message_id FROM events
        WHERE account_id = due.account_id AND seq > due.after AND seq <= due.upto AND id >= $3
        LIMIT due.upto - due.after
    ) e
    WHERE e.type IN ('delivered', 'bounced', 'failed', 'complained') AND e.message_id >= due.forgiven
      AND (e.type <> 'bounced' OR position('"scope":"site"' IN e.payload) = 0)
      AND position('"simulated":true' IN e.payload) = 0
), sums AS (
    SELECT account_id, quarter, count(*) FILTER (WHERE type <> 'complained' AND NOT late) AS settled,
           count(*) FILTER (WHERE type = 'bounced') AS bounced, count(*) FILTER (WHERE type = 'complained') AS complained
    FROM seen GROUP BY 1, 2
), counted AS (
    INSERT INTO outcome_quarters AS q (account_id, quarter, settled, bounced, complained)
    SELECT account_id, quarter, settled, bounced, complained FROM sums
    ON CONFLICT (account_id, quarter) DO UPDATE SET settled = q.settled + excluded.settled,
        bounced = q.bounced + excluded.bounced, complained = q.complained + excluded.complained
), by_day AS (
    INSERT INTO outcome_days AS d (account_id, day, settled, bounced, complained)
    SELECT account_id, date '1970-01-01' + quarter / 96, sum(settled), sum(bounced), sum(complained) FROM sums GROUP BY 1, 2
    ON CONFLICT (account_id, day) DO UPDATE SET settled = d.settled + excluded.settled,
        bounced = d.bounced + excluded.bounced, complained = d.complained + excluded.complained
), by_source AS (
    INSERT INTO complaint_sources AS s (account_id, reporter, domain, quarter)
    SELECT account_id, coalesce(substring(complaint ->> 'reporter' FROM '[^.]+\.[^.]+$'), complaint ->> 'reporter'),
           coalesce(domain_of(lower(complaint ->> 'recipient')), ''), max(quarter)
    FROM seen WHERE type = 'complained' AND complaint ->> 'reporter' <> '' GROUP BY 1, 2, 3
    ON CONFLICT (account_id, reporter, domain) DO UPDATE SET quarter = greatest(s.quarter, excluded.quarter)
), moved AS (
    UPDATE account_standings s SET judged_seq = due.upto FROM due WHERE s.account_id = due.account_id
)
SELECT count(*) AS logs, count(*) FILTER (WHERE upto < tip) AS unfinished FROM due;

-- name: offenders
-- Return active accounts with at least $2 recipients settled after quarter-hour $1 whose share of bounces reaches $3 or
-- of complaints $4, except the platform account. A complaint counts once per authenticated reporter and recipient domain,
-- so that no single reporter can suspend an account; there must be $5 such pairs, with $6 reporters among them.
WITH sums AS (
    SELECT q.account_id, sum(q.settled)::bigint AS settled, sum(q.bounced)::bigint AS bounced
    FROM outcome_quarters q JOIN accounts a ON a.id = q.account_id AND a.status = 'active'
    WHERE q.quarter > $1 AND NOT EXISTS (SELECT 1 FROM platform p WHERE p.account_id = q.account_id)
    GROUP BY q.account_id
    HAVING sum(q.settled) >= $2
), complaints AS (
    SELECT account_id, count(*) AS pairs, count(DISTINCT reporter) AS reporters
    FROM complaint_sources WHERE quarter > $1 AND reporter <> '' GROUP BY account_id  -- '': not authenticated
)
SELECT s.account_id, s.settled, s.bounced, coalesce(c.pairs, 0) AS complained
FROM sums s LEFT JOIN complaints c ON c.account_id = s.account_id
WHERE s.bounced >= $3::float8 * s.settled
   OR (c.pairs >= $4::float8 * s.settled AND c.pairs >= $5 AND c.reporters >= $6)
ORDER BY s.account_id;

-- name: forget_outcomes
-- Delete figures up to quarter-hour $1, and those of days before $2.
WITH days AS (DELETE FROM outcome_days WHERE day < $2),
     sources AS (DELETE FROM complaint_sources WHERE quarter <= $1)
DELETE FROM outcome_quarters WHERE quarter <= $1;
