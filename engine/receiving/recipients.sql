-- name: receiving_domain
-- Read the domain that receives mail under name $1, of whatever account.
SELECT id, account_id FROM domains WHERE name = $1 AND receives_since IS NOT NULL AND deleted_at IS NULL;

-- name: account_state
-- Read the plan and status of account $1, and the messages received in the month $2 that count on it or on its parent.
SELECT a.plan, a.status, coalesce(u.used, 0) AS received
FROM accounts a LEFT JOIN plan_usage u
  ON u.account_id = coalesce(a.parent_id, a.id) AND u.resource = 'received_messages' AND u.month = $2
WHERE a.id = $1;

-- name: platform_account
-- Read the platform account.
SELECT account_id FROM platform;
