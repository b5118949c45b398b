-- name: insert_account
-- Insert account $1 with name $2, plan $3, agreed caps $4 and $5, its head and its transactional stream.
WITH account AS (
    INSERT INTO accounts (id, name, plan, daily_cap, monthly_cap, created_at) VALUES ($1, $2, $3, $4, $5, now()) RETURNING id
), head AS (
    INSERT INTO account_heads (account_id) SELECT id FROM account
)
INSERT INTO streams (account_id, slug, name, created_at) SELECT id, 'transactional', 'Transactional', now() FROM account;

-- name: read_account
-- Read account $1. A longer retention of its parent applies to it as well, and for a while that of a larger plan before.
SELECT a.id, a.name, a.plan, a.status, a.parent_id, a.daily_cap, a.monthly_cap,
       greatest(a.retention_days, p.retention_days, k.days) AS retention_days, a.agreed_caps, a.created_at
FROM accounts a LEFT JOIN accounts p ON p.id = a.parent_id
LEFT JOIN kept_retentions k ON k.account_id = a.id AND k.until > now()
WHERE a.id = $1;

-- name: count_used
-- Count the resources of account $1 that its plan limits; $2 is the first day of the month.
SELECT (SELECT count(*) FROM api_keys WHERE account_id = $1 AND revoked_at IS NULL
        AND (expires_at IS NULL OR expires_at > now())) AS api_keys,
       (SELECT count(*) FROM domains WHERE account_id = $1 AND deleted_at IS NULL) AS domains,
       (SELECT count(*) FROM streams WHERE account_id = $1 AND deleted_at IS NULL) AS streams,
       (SELECT count(*) FROM templates WHERE account_id = $1 AND deleted_at IS NULL) AS templates,
       (SELECT count(*) FROM layouts WHERE account_id = $1 AND deleted_at IS NULL) AS layouts,
       (SELECT count(*) FROM webhooks WHERE account_id = $1 AND status <> 'deleted') AS webhooks,
       (SELECT count(*) FROM members WHERE account_id = $1)
       + (SELECT count(*) FROM invites WHERE account_id = $1 AND expires_at > now()) AS seats,
       (SELECT count(*) FROM accounts a WHERE a.parent_id = $1 AND a.status <> 'closing'
        AND NOT EXISTS (SELECT 1 FROM deletions d WHERE d.account_id = a.id)) AS sub_accounts,
       (SELECT scheduled FROM account_heads WHERE account_id = $1) AS scheduled_messages,
       (SELECT count(*) FROM inbound_addresses WHERE account_id = $1 AND in_plan) AS inbound_addresses,
       monthly.received_messages,
       coalesce((SELECT contacts FROM contact_totals WHERE account_id = $1), 0) AS contacts,
       coalesce((SELECT lists FROM contact_totals WHERE account_id = $1), 0) AS lists,
       coalesce((SELECT segments FROM contact_totals WHERE account_id = $1), 0) AS segments,
       monthly.verifications, monthly.address_checks
FROM (SELECT coalesce(sum(u.used) FILTER (WHERE u.resource = 'received_messages'), 0)::bigint AS received_messages,
             coalesce(sum(u.used) FILTER (WHERE u.resource = 'verifications'), 0)::bigint AS verifications,
             coalesce(sum(u.used) FILTER (WHERE u.resource = 'address_checks'), 0)::bigint AS address_checks
      FROM accounts a JOIN plan_usage u ON u.account_id = coalesce(a.parent_id, a.id)
      WHERE a.id = $1 AND u.month = $2) AS monthly;

-- name: rename_account
-- Rename account $1 to $2; returns no row if that is its name already.
UPDATE accounts SET name = $2 WHERE id = $1 AND name <> $2 RETURNING id;
