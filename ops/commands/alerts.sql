-- name: alert_rules
-- List the alert rules of account $1 (null: of all) in state $2 (null: any), those that fire or are unknown first, at most
-- $3.
WITH shown AS (
    SELECT r.*, a.name AS account, a.status AS account_status,
           CASE WHEN r.firing_since IS NOT NULL THEN 'firing' WHEN r.last_value IS NULL THEN 'unknown' ELSE 'ok' END AS state
    FROM alert_rules r JOIN accounts a ON a.id = r.account_id WHERE $1::uuid IS NULL OR r.account_id = $1
)
SELECT id, account_id, account, account_status, kind, threshold, window_days, enabled, state, last_value, unknown_because,
       firing_since, notified, noticed_at, cooldown_minutes, last_measured_at
FROM shown WHERE $2::text IS NULL OR state = $2
ORDER BY array_position(ARRAY['firing', 'unknown', 'ok'], state), account, kind, id LIMIT $3;

-- name: alert_firings
-- List the alerts that fired of account $1 (null: of all), only those that have not ended if $2, newest first, at most $3.
SELECT e.id, e.account_id, a.name AS account, e.rule_id, e.kind, e.value, e.threshold, e.channels, e.fired_at, e.ended_at
FROM alert_events e JOIN accounts a ON a.id = e.account_id
WHERE ($1::uuid IS NULL OR e.account_id = $1) AND (NOT $2::boolean OR e.ended_at IS NULL) ORDER BY e.id DESC LIMIT $3;
