-- name: family
-- Account $1 with the account above it and its sub-accounts, in the order of ids.
SELECT a.id, a.parent_id, a.name, a.status FROM accounts a
WHERE a.id = $1 OR a.parent_id = $1 OR a.id = (SELECT parent_id FROM accounts WHERE id = $1)
ORDER BY a.id;

-- name: lay
-- Accounts $1 are suspended for cause $2 with reason $3 from $4 on; a cause that stands already gets the new reason.
INSERT INTO suspensions (account_id, cause, reason, created_at)
SELECT id, $2, $3, $4 FROM unnest($1::uuid[]) AS n (id)
ON CONFLICT (account_id, cause) DO UPDATE SET reason = excluded.reason;

-- name: lift
-- Accounts $1 are no longer suspended for the causes $2.
DELETE FROM suspensions WHERE account_id = ANY ($1::uuid[]) AND cause = ANY ($2::text[]) RETURNING account_id, cause;

-- name: follow
-- The status of accounts $1 as their suspensions have it; those that it changes. One that is being erased stays so.
UPDATE accounts a SET status = n.status
FROM (SELECT id, CASE WHEN EXISTS (SELECT FROM suspensions s WHERE s.account_id = n.id) THEN 'suspended' ELSE 'active' END AS status
      FROM unnest($1::uuid[]) AS n (id)) n
WHERE a.id = n.id AND a.status IN ('active', 'suspended') AND a.status <> n.status
RETURNING a.id, a.status;

-- name: standing_causes
-- Why account $1 is suspended, the oldest cause first.
SELECT cause, reason, created_at FROM suspensions WHERE account_id = $1 ORDER BY created_at, cause;

-- name: hold_mail
-- Hold $2 on the queued mail of account $1, public id $3, for reason $4, unless the operator holds it already.
WITH laid AS (
    INSERT INTO holds (id, kind, target, reason) VALUES ($2, 'account', $3, $4)
    ON CONFLICT (kind, target) WHERE NOT ended DO NOTHING RETURNING id
)
INSERT INTO account_standings (account_id, hold_id) SELECT $1, id FROM laid
ON CONFLICT (account_id) DO UPDATE SET hold_id = excluded.hold_id;

-- name: let_mail_go
-- End the hold that the suspension of account $1 has laid.
WITH was AS MATERIALIZED (
    SELECT account_id, hold_id FROM account_standings WHERE account_id = $1 AND hold_id IS NOT NULL
), ended AS (
    UPDATE holds SET ended = true WHERE id = (SELECT hold_id FROM was)
)
UPDATE account_standings s SET hold_id = NULL FROM was WHERE s.account_id = was.account_id;

-- name: pardon
-- What has come of the mail of account $1 by $2, and what still comes of mail accepted before, is forgiven.
WITH figures AS (
    DELETE FROM outcome_quarters WHERE account_id = $1
)
INSERT INTO account_standings (account_id, judged_seq, pardoned_at)
SELECT account_id, seq, $2 FROM account_heads WHERE account_id = $1
ON CONFLICT (account_id) DO UPDATE SET judged_seq = excluded.judged_seq, pardoned_at = excluded.pardoned_at;

-- name: owners_of
-- The addresses of the owners of account $1, or of the account above it.
SELECT u.email FROM accounts a JOIN members m ON m.account_id = coalesce(a.parent_id, a.id) AND m.role = 'owner'
JOIN users u ON u.id = m.user_id WHERE a.id = $1 ORDER BY u.id;

-- name: is_platform
-- Whether account $1 is the one that the service itself sends from.
SELECT account_id FROM platform WHERE account_id = $1;

-- name: open_standings
-- A standing for every account that has a log and none yet.
INSERT INTO account_standings (account_id)
SELECT h.account_id FROM account_heads h JOIN accounts a ON a.id = h.account_id AND a.status <> 'closing'
WHERE h.seq > 0 AND NOT EXISTS (SELECT 1 FROM account_standings s WHERE s.account_id = h.account_id)
ON CONFLICT DO NOTHING;

-- name: count_outcomes
-- Add the outcomes of at most $1 logs, at most $2 events of each, to their quarters: events with ids from $3 on. A
-- bounce that says that the service's own servers are refused says nothing of the account, and nothing does that was
-- simulated (the quotes are not to be had within the JSON's strings). Gives how many logs there were, and of them those
-- that go on. The limit keeps the other conditions behind the walk along the log: with them the planner reads everything
-- that has come of any message.
WITH due AS MATERIALIZED (
    SELECT s.account_id, s.judged_seq AS after, least(h.seq, s.judged_seq + $2::bigint) AS upto, h.seq AS tip,
           uuid7_floor((extract(epoch FROM coalesce(s.pardoned_at, '1970-01-01 00:00Z')) * 1000)::bigint) AS forgiven
    FROM account_standings s JOIN account_heads h ON h.account_id = s.account_id
    WHERE h.seq > s.judged_seq
    ORDER BY h.seq - s.judged_seq DESC, s.account_id LIMIT $1 FOR NO KEY UPDATE OF s SKIP LOCKED
), seen AS (
    SELECT due.account_id, floor(extract(epoch FROM e.occurred_at) / 900)::integer AS quarter, e.type
    FROM due CROSS JOIN LATERAL (
        SELECT type, occurred_at, payload, message_id FROM events
        WHERE account_id = due.account_id AND seq > due.after AND seq <= due.upto AND id >= $3
        LIMIT due.upto - due.after
    ) e
    WHERE e.type IN ('delivered', 'bounced', 'failed', 'complained') AND e.message_id >= due.forgiven
      AND (e.type <> 'bounced' OR position('"scope":"site"' IN e.payload) = 0)
      AND position('"simulated":true' IN e.payload) = 0
), counted AS (
    INSERT INTO outcome_quarters AS q (account_id, quarter, settled, bounced, complained)
    SELECT account_id, quarter, count(*) FILTER (WHERE type <> 'complained'), count(*) FILTER (WHERE type = 'bounced'),
           count(*) FILTER (WHERE type = 'complained')
    FROM seen GROUP BY 1, 2
    ON CONFLICT (account_id, quarter) DO UPDATE SET settled = q.settled + excluded.settled,
        bounced = q.bounced + excluded.bounced, complained = q.complained + excluded.complained
), moved AS (
    UPDATE account_standings s SET judged_seq = due.upto FROM due WHERE s.account_id = due.account_id
)
SELECT count(*) AS logs, count(*) FILTER (WHERE upto < tip) AS unfinished FROM due;

-- name: offenders
-- Active accounts with at least $2 recipients settled after quarter $1 whose share of bounces reaches $3 or of
-- complaints $4. The service's own account is never among them.
SELECT q.account_id, sum(q.settled)::bigint AS settled, sum(q.bounced)::bigint AS bounced,
       sum(q.complained)::bigint AS complained
FROM outcome_quarters q JOIN accounts a ON a.id = q.account_id AND a.status = 'active'
WHERE q.quarter > $1 AND NOT EXISTS (SELECT 1 FROM platform p WHERE p.account_id = q.account_id)
GROUP BY q.account_id
HAVING sum(q.settled) >= $2
   AND (sum(q.bounced) >= $3::float8 * sum(q.settled) OR sum(q.complained) >= $4::float8 * sum(q.settled))
ORDER BY q.account_id;

-- name: forget_outcomes
-- Figures up to quarter $1, which nobody is judged by any more.
DELETE FROM outcome_quarters WHERE quarter <= $1;
