-- name: load_policies
-- The policies of domains $1 that have not expired at $2.
SELECT domain, record_id, policy, fetched_at, expires_at FROM sts_policies
WHERE domain = ANY($1::text[]) AND expires_at > $2;

-- name: save_policy
-- Store the policy of domain $1, announced with id $2, as text $3, fetched at $4, valid until $5; keep a later fetch.
INSERT INTO sts_policies (domain, record_id, policy, fetched_at, expires_at) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (domain) DO UPDATE
SET record_id = EXCLUDED.record_id, policy = EXCLUDED.policy, fetched_at = EXCLUDED.fetched_at,
    expires_at = EXCLUDED.expires_at
WHERE sts_policies.fetched_at <= EXCLUDED.fetched_at;

-- name: forget_policies
-- Delete the policies that expired before $1.
DELETE FROM sts_policies WHERE expires_at < $1;
