-- name: find_key
-- Read the key with public part $1, with status and plan of its account.
SELECT k.id, k.key_id, k.account_id, k.digest, k.scopes, k.expires_at, k.revoked_at, a.status AS account_status, a.plan,
       a.agreed_caps, k.domains, k.streams, k.networks, k.allowed_origins, k.agent_recipients, k.agent_approval
FROM api_keys k JOIN accounts a ON a.id = k.account_id WHERE k.key_id = $1;

-- fragment: key_columns
-- Columns of `api_keys` in the order of KeyListRow.
id, key_id, name, scopes, created_at, expires_at, last_used_at, revoked_at, domains, streams, networks,
allowed_origins, agent_recipients, agent_approval, replaced_by

-- name: list_keys
-- List keys of account $1 with ids below $2 (null: from the newest), newest first, at most $3.
SELECT :key_columns
FROM api_keys WHERE account_id = $1 AND ($2::uuid IS NULL OR id < $2) ORDER BY id DESC LIMIT $3;

-- name: insert_key
-- Insert key $1 with public part $2 of account $3, name $4, digest $5, scopes $6, expiry $7; its digest is under the pepper
-- with fingerprint $8.
INSERT INTO api_keys (id, key_id, account_id, name, digest, scopes, expires_at, created_at, pepper_print)
VALUES ($1, $2, $3, $4, $5, $6, $7, clock_timestamp(), $8)
RETURNING created_at;

-- name: limit_key
-- Restrict key $1 to domains $2, streams $3 and networks $4 (null: no restriction); pages of origins $5 may use it, and
-- agents as their recipients $6 and approval $7 say.
UPDATE api_keys
SET domains = $2, streams = $3, networks = $4, allowed_origins = $5, agent_recipients = $6, agent_approval = $7
WHERE id = $1;

-- name: places_held
-- Return the domains and streams of account $1.
SELECT ARRAY(SELECT name FROM domains WHERE account_id = $1) AS domains,
       ARRAY(SELECT slug FROM streams WHERE account_id = $1 AND deleted_at IS NULL) AS streams;

-- name: holder_of
-- Read the account of key $1, if it is account $2 or a sub-account of it.
SELECT k.account_id FROM api_keys k JOIN accounts a ON a.id = k.account_id
WHERE k.id = $1 AND (k.account_id = $2 OR a.parent_id = $2);

-- name: revoke_key
-- Revoke key $2 of account $1; returns no row if it was revoked before.
UPDATE api_keys SET revoked_at = now() WHERE account_id = $1 AND id = $2 AND revoked_at IS NULL RETURNING name;

-- name: lock_key
-- Lock and return key $2 of account $1.
SELECT :key_columns FROM api_keys WHERE account_id = $1 AND id = $2 FOR UPDATE;

-- name: rename_key
-- Name key $2 of account $1 $3.
UPDATE api_keys SET name = $3 WHERE account_id = $1 AND id = $2 RETURNING :key_columns;

-- name: replace_key
-- Replace key $2 of account $1 by key $3: it expires at $4.
UPDATE api_keys SET replaced_by = $3, expires_at = $4 WHERE account_id = $1 AND id = $2 RETURNING :key_columns;

-- name: live_predecessor
-- Return the key that key $2 of account $1 replaces, if it still authenticates at $3.
SELECT id FROM api_keys
WHERE account_id = $1 AND replaced_by = $2 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > $3);

-- name: touch_keys
-- Set the last uses of the keys with public parts $1 to times $2.
UPDATE api_keys k SET last_used_at = greatest(k.last_used_at, n.at)
FROM unnest($1::text[], $2::timestamptz[]) AS n (key_id, at) WHERE k.key_id = n.key_id;

-- name: redigest_keys
-- Set the digests of keys $1 to $3 where they are $2, unless another pepper than that with fingerprint $4 is the present
-- one.
UPDATE api_keys k SET digest = n.fresh, pepper_print = $4
FROM unnest($1::uuid[], $2::bytea[], $3::bytea[]) AS n (id, stale, fresh)
WHERE k.id = n.id AND k.digest = n.stale AND NOT EXISTS (SELECT FROM installation WHERE pepper_print <> $4);

-- name: count_live_keys
-- Count the keys of account $1 that are neither revoked nor expired.
SELECT count(*) AS live FROM api_keys
WHERE account_id = $1 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > now());
