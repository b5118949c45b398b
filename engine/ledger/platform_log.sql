-- name: platform_account
-- Read the platform account.
SELECT account_id FROM platform;
