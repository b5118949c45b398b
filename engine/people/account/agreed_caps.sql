-- name: read_agreed
-- Read the plan of account $1 and the limits that were agreed on.
SELECT plan, parent_id, monthly_cap, retention_days, agreed_caps FROM accounts WHERE id = $1;

-- name: write_agreed
-- Store the agreed monthly emails $2, retention $3 (days) and other limits $4 (JSON) of account $1; null: the plan's.
UPDATE accounts SET monthly_cap = $2, retention_days = $3, agreed_caps = $4::jsonb WHERE id = $1;
