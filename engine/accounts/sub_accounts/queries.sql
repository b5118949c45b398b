-- name: insert_sub_account
-- Insert sub-account $1 of account $3, named $2, with the same plan and agreed limits, monthly limit $4, head and transactional stream.
WITH account AS (
    INSERT INTO accounts (id, name, plan, agreed_caps, parent_id, monthly_cap, created_at)
    SELECT $1, $2, plan, agreed_caps, id, $4, clock_timestamp() FROM accounts WHERE id = $3
    RETURNING id
), head AS (
    INSERT INTO account_heads (account_id) SELECT id FROM account
)
INSERT INTO streams (account_id, slug, name, created_at) SELECT id, 'transactional', 'Transactional', now() FROM account;

-- name: list_sub_accounts
-- List sub-accounts of account $1 with ids below $2 (null: from the newest), newest first, at most $3.
SELECT a.id, a.name, a.status, a.monthly_cap, a.created_at, d.due_at, h.day, h.sent_today, h.month, h.sent_this_month, h.rung,
       a.daily_cap, ARRAY(SELECT cause FROM suspensions s WHERE s.account_id = a.id ORDER BY created_at, cause) AS causes
FROM accounts a JOIN account_heads h ON h.account_id = a.id LEFT JOIN deletions d ON d.account_id = a.id
WHERE a.parent_id = $1 AND a.status <> 'closing' AND ($2::uuid IS NULL OR a.id < $2) ORDER BY a.id DESC LIMIT $3;

-- name: read_sub_account
-- Read sub-account $2 of account $1.
SELECT a.id, a.name, a.status, a.monthly_cap, a.created_at, d.due_at, h.day, h.sent_today, h.month, h.sent_this_month, h.rung,
       a.daily_cap, ARRAY(SELECT cause FROM suspensions s WHERE s.account_id = a.id ORDER BY created_at, cause) AS causes
FROM accounts a JOIN account_heads h ON h.account_id = a.id LEFT JOIN deletions d ON d.account_id = a.id
WHERE a.parent_id = $1 AND a.id = $2 AND a.status <> 'closing';

-- name: count_sub_accounts
-- Count the sub-accounts of account $1 without a scheduled deletion.
SELECT count(*) AS used FROM accounts a
WHERE a.parent_id = $1 AND a.status <> 'closing' AND NOT EXISTS (SELECT 1 FROM deletions d WHERE d.account_id = a.id);

-- name: change_sub_account
-- Set name $2 and monthly limit $3 (null: only the parent's limit applies) of account $1.
UPDATE accounts SET name = $2, monthly_cap = $3 WHERE id = $1;
