-- fragment: rule_columns
-- The columns of a rule.
r.id, r.account_id, r.kind, r.threshold, r.window_days, r.cooldown_minutes, r.notify_email, r.notify_webhook, r.enabled,
r.firing_since, r.below, r.event_id, r.notified, r.noticed_at, r.last_value, r.unknown_because, r.last_measured_at,
r.created_at, r.updated_at

-- fragment: event_columns
-- The columns of an alert event.
e.id, e.account_id, e.rule_id, e.kind, e.value, e.threshold, e.window_days, e.channels, e.detail, e.fired_at, e.ended_at

-- name: list_rules
-- List rules of account $1 with ids below $2 (null: from the newest), newest first, at most $3.
SELECT :rule_columns FROM alert_rules r
WHERE r.account_id = $1 AND ($2::uuid IS NULL OR r.id < $2) ORDER BY r.id DESC LIMIT $3;

-- name: read_rule
-- Read rule $2 of account $1.
SELECT :rule_columns FROM alert_rules r WHERE r.account_id = $1 AND r.id = $2;

-- name: lock_rule
-- Read rule $2 of account $1, and lock it for a change. Lock it before an account head.
SELECT :rule_columns FROM alert_rules r WHERE r.account_id = $1 AND r.id = $2 FOR NO KEY UPDATE;

-- name: insert_rule
-- Insert a rule.
INSERT INTO alert_rules (id, account_id, kind, threshold, window_days, cooldown_minutes, notify_email, notify_webhook,
                         enabled, created_at, updated_at)
VALUES (:rule, :account, :kind, :threshold::float8, :window_days::smallint, :cooldown_minutes::integer, :notify_email::boolean,
        :notify_webhook::boolean, :enabled::boolean, :at, :at);

-- name: change_rule
-- Replace the fields of a rule; its state stays.
UPDATE alert_rules
SET threshold = :threshold::float8, window_days = :window_days::smallint, cooldown_minutes = :cooldown_minutes::integer,
    notify_email = :notify_email::boolean, notify_webhook = :notify_webhook::boolean, enabled = :enabled::boolean,
    updated_at = now()
WHERE id = :rule;

-- name: delete_rule
-- Delete rule $1, and end its firing at $2; returns the event that ended.
WITH ended AS (
    UPDATE alert_events e SET ended_at = $2 FROM alert_rules r
    WHERE r.id = $1 AND e.id = r.event_id AND e.ended_at IS NULL
    RETURNING :event_columns
), gone AS (
    DELETE FROM alert_rules WHERE id = $1
)
SELECT * FROM ended;

-- name: mark_tested
-- Record a test of rule $1 at $2, unless there was one after $3; returns no row then.
UPDATE alert_rules SET tested_at = $2 WHERE id = $1 AND (tested_at IS NULL OR tested_at <= $3) RETURNING id;

-- name: list_events
-- List alert events of account $1 with ids below $2 (null: from the newest), newest first, at most $3 (decision 0086).
SELECT :event_columns FROM alert_events e
WHERE e.account_id = ANY (ARRAY[$1::uuid]) AND ($2::uuid IS NULL OR e.id < $2)
ORDER BY e.account_id DESC, e.id DESC LIMIT $3;

-- name: events_of_ids
-- Read the alert events $1.
SELECT :event_columns FROM alert_events e WHERE e.id = ANY ($1::uuid[]);

-- name: any_due
-- Return a row if an enabled rule of an open account was not measured after $1.
SELECT 1 AS due FROM alert_rules r
WHERE r.enabled AND (r.last_measured_at IS NULL OR r.last_measured_at <= $1)
  AND EXISTS (SELECT FROM accounts a WHERE a.id = r.account_id AND a.status NOT IN ('closing', 'moving')) LIMIT 1;

-- name: take_due
-- Lock the enabled rules of kind $1 of open accounts after account $3 that were not measured after $2, at most $4, in the
-- order of accounts. Skips those that another process has locked.
SELECT :rule_columns FROM alert_rules r JOIN accounts a ON a.id = r.account_id AND a.status NOT IN ('closing', 'moving')
WHERE r.kind = $1 AND r.enabled AND r.account_id > $3 AND (r.last_measured_at IS NULL OR r.last_measured_at <= $2)
ORDER BY r.account_id LIMIT $4 FOR NO KEY UPDATE OF r SKIP LOCKED;

-- name: save_measured
-- Store the measurement of locked rules.
UPDATE alert_rules r
SET firing_since = rule.firing_since, below = rule.below, event_id = rule.event_id, notified = rule.notified,
    noticed_at = rule.noticed_at, last_value = rule.last_value, unknown_because = rule.unknown_because,
    last_measured_at = :at
FROM :rule WHERE r.id = rule.id;

-- name: insert_events
-- Insert alert events.
INSERT INTO alert_events (:event.names) SELECT event.* FROM :event;

-- name: set_channels
-- Record that the notices of events $1 went out on channels $2, JSON arrays.
UPDATE alert_events e SET channels = ARRAY(SELECT jsonb_array_elements_text(n.channels::jsonb))
FROM unnest($1::uuid[], $2::text[]) AS n (id, channels) WHERE e.id = n.id;

-- name: end_events
-- End the events $1 at $2.
UPDATE alert_events SET ended_at = $2 WHERE id = ANY ($1::uuid[]) AND ended_at IS NULL;
