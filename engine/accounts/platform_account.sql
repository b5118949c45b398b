-- name: read_platform
-- Return the platform account, and whether system mail is due at $1.
SELECT (SELECT account_id FROM platform) AS account_id, (SELECT sender FROM platform) AS sender,
       EXISTS (SELECT 1 FROM system_mail WHERE due_at <= $1) AS due;

-- name: set_platform
-- Make account $1 the platform account with sender $2 (null: the default).
INSERT INTO platform (account_id, sender) VALUES ($1, $2)
ON CONFLICT (one) DO UPDATE SET account_id = excluded.account_id, sender = excluded.sender;

-- name: lock_platform
-- Allow one creation of the platform account at a time, until the transaction ends.
SELECT pg_advisory_xact_lock(hashtext('waybill platform account')::bigint # :lock_schema);
