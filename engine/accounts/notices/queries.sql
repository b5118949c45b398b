-- name: find
-- Find what needs a person in account $1: at most $2 things of a kind. A webhook fails with $3 failures in a row; stopped
-- broadcasts are told until they ended before $4; sends of agents wait for approval at $5.
(SELECT 'alert_firing' AS kind, r.id AS object_id, r.kind AS name, r.firing_since AS since, r.last_value AS value, r.threshold,
        e.value AS fired_value
 FROM alert_rules r LEFT JOIN alert_events e ON e.id = r.event_id AND e.account_id = $1
 WHERE r.account_id = $1 AND r.enabled AND r.firing_since IS NOT NULL LIMIT $2)
UNION ALL
(SELECT 'webhook_failing', w.id, w.url, w.failing_since, NULL, NULL, NULL FROM webhooks w
 WHERE w.account_id = $1 AND w.status = 'active' AND w.failures >= $3 ORDER BY w.failing_since DESC LIMIT $2)
UNION ALL
(SELECT 'webhook_disabled', w.id, w.url, NULL, NULL, NULL, NULL FROM webhooks w
 WHERE w.account_id = $1 AND w.status = 'disabled' ORDER BY w.id DESC LIMIT $2)
UNION ALL
(SELECT 'domain_unverified', d.id, d.name, NULL, NULL, NULL, NULL FROM domains d
 WHERE d.account_id = $1 AND d.status = 'failed' AND d.deleted_at IS NULL ORDER BY d.name LIMIT $2)
UNION ALL
(SELECT 'broadcast_' || b.status, b.id, b.name, b.updated_at, NULL, NULL, NULL FROM broadcasts b
 WHERE b.account_id = $1 AND b.status IN ('in_review', 'paused') ORDER BY b.id DESC LIMIT $2)
UNION ALL
(SELECT 'broadcast_stopped', b.id, b.name, b.finished_at, NULL, NULL, NULL FROM broadcasts b
 WHERE b.account_id = $1 AND b.status = 'stopped' AND b.finished_at > $4 ORDER BY b.id DESC LIMIT $2)
UNION ALL
(SELECT 'agent_sends_waiting', (array_agg(s.id ORDER BY s.id DESC))[1], count(*)::text, max(s.created_at), NULL, NULL, NULL
 FROM agent_sends s WHERE s.account_id = $1 AND s.state = 'pending' AND s.expires_at > $5 HAVING count(*) > 0);

-- name: marks_of
-- List the notices of account $1 that person $2 has marked.
SELECT notice, dismissed FROM notice_marks WHERE account_id = $1 AND user_id = $2;

-- name: mark
-- Mark notices $3 of account $1 for person $2 at $4, dismissed or not as $5 says; a dismissed one stays so. Forgets the
-- marks of notices other than $6.
WITH gone AS (
    DELETE FROM notice_marks WHERE account_id = $1 AND user_id = $2 AND notice <> ALL ($6::text[])
)
INSERT INTO notice_marks AS m (account_id, user_id, notice, dismissed, marked_at)
SELECT p.account_id, p.user_id, n.notice, $5, $4 FROM members p, unnest($3::text[]) AS n (notice)
WHERE p.account_id = $1 AND p.user_id = $2
ON CONFLICT (account_id, user_id, notice) DO UPDATE
SET dismissed = m.dismissed OR excluded.dismissed, marked_at = excluded.marked_at;
