-- name: store_accounts
-- Store accounts $1 with a head, a verified domain, outcomes in every quarter-hour after $2 and on 30 days up to $3.
WITH account AS (
    INSERT INTO accounts (id, name, plan) SELECT n.id, 'Bench ' || n.id, 'growth' FROM unnest($1::uuid[]) AS n (id) RETURNING id
), head AS (
    INSERT INTO account_heads (account_id, sent_this_month, month)
    SELECT id, 1000, date_trunc('month', $3::date) FROM account
), domain AS (
    INSERT INTO domains (id, account_id, name, created_at, status, return_path_label, blocklist_measured_until)
    SELECT gen_random_uuid(), id, id || '.test', now(), 'verified', 'bounce', now() + interval '1 day' FROM account
), day AS (
    INSERT INTO outcome_days SELECT id, $3::date - step, 1000, 10, 0 FROM account CROSS JOIN generate_series(0, 30) AS step
)
INSERT INTO outcome_quarters SELECT id, $2::integer + step, 10, 0, 0 FROM account CROSS JOIN generate_series(1, 96) AS step;

-- name: store_rules
-- Store an alert rule of each kind for accounts $1; every second one has a window of $2 days.
INSERT INTO alert_rules (id, account_id, kind, threshold, window_days, cooldown_minutes, notify_email, notify_webhook,
                         enabled, created_at, updated_at)
SELECT gen_random_uuid(), n.id, k.kind, k.threshold, CASE WHEN n.place % 2 = 0 THEN $2::integer ELSE 1 END, 1440, true, true,
       true, now(), now()
FROM unnest($1::uuid[]) WITH ORDINALITY AS n (id, place)
CROSS JOIN (VALUES ('complaint_rate', 0.005), ('bounce_rate', 0.15), ('quota_usage', 0.8), ('dns_drift', 1.0), ('blocklist', 1.0))
    AS k (kind, threshold);

-- name: cross
-- Let the domains of accounts $1 drift.
UPDATE domains SET records_drifted = 1 WHERE account_id = ANY ($1::uuid[]);

-- name: vacuum_rules
-- Vacuum as a running service would.
VACUUM ANALYZE alert_rules, outcome_quarters, outcome_days, accounts, account_heads, domains;
