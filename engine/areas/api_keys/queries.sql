-- name: find_key
-- The key whose clear part is $1, with its account's standing.
SELECT k.id, k.key_id, k.account_id, k.digest, k.scopes, k.expires_at, k.revoked_at, a.status AS account_status, a.plan,
       k.domains, k.streams, k.networks
FROM api_keys k JOIN accounts a ON a.id = k.account_id WHERE k.key_id = $1;

-- name: list_keys
-- Keys of account $1 older than id $2 (null: from the newest), at most $3.
SELECT id, key_id, name, scopes, created_at, expires_at, last_used_at, revoked_at, domains, streams, networks
FROM api_keys WHERE account_id = $1 AND ($2::uuid IS NULL OR id < $2) ORDER BY id DESC LIMIT $3;

-- name: insert_key
-- Key $1 with clear part $2 of account $3, name $4, digest $5, scopes $6, expiry $7.
INSERT INTO api_keys (id, key_id, account_id, name, digest, scopes, expires_at, created_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, clock_timestamp())
RETURNING created_at;

-- name: limit_key
-- Key $1 is for domains $2, streams $3 and networks $4 alone (null: for all of its account's).
UPDATE api_keys SET domains = $2, streams = $3, networks = $4 WHERE id = $1;

-- name: holder_of
-- The account of key $1, where it is account $2 or a sub-account of it.
SELECT k.account_id FROM api_keys k JOIN accounts a ON a.id = k.account_id
WHERE k.id = $1 AND (k.account_id = $2 OR a.parent_id = $2);

-- name: revoke_key
-- Revoke key $2 of account $1; a key revoked before keeps its first time, and comes back as nothing.
UPDATE api_keys SET revoked_at = now() WHERE account_id = $1 AND id = $2 AND revoked_at IS NULL RETURNING name;

-- name: touch_keys
-- Last use of the keys with clear parts $1 at times $2.
UPDATE api_keys k SET last_used_at = greatest(k.last_used_at, n.at)
FROM unnest($1::text[], $2::timestamptz[]) AS n (key_id, at) WHERE k.key_id = n.key_id;

-- name: count_live_keys
-- How many keys of account $1 are neither revoked nor past their expiry.
SELECT count(*) AS live FROM api_keys
WHERE account_id = $1 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > now());
