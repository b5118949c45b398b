-- name: domain_names
-- Read names, statuses and verified return-path hosts of the domains of account $1.
SELECT name, status,
       CASE WHEN return_path = 'verified' AND status = 'verified' THEN return_path_label || '.' || name END
           AS return_path_host
FROM domains WHERE account_id = $1 AND deleted_at IS NULL;

-- name: list_domains
-- List domains of account $1 with ids below $2 (null: from the newest) and names $4 (null: all), newest first, at most $3.
SELECT id, account_id, name, status, created_at, verified_at, checked_at, vouched, misses, findings::text AS findings,
       return_path_label, return_path, return_path_misses,
       (SELECT p.policy_id FROM hosted_sts_policies p WHERE p.domain_id = domains.id) AS sts_policy_id
FROM domains
WHERE account_id = $1 AND deleted_at IS NULL AND ($2::uuid IS NULL OR id < $2) AND ($4::text[] IS NULL OR name = ANY ($4))
ORDER BY id DESC LIMIT $3;

-- name: read_domain
-- Read domain $2 of account $1, by name.
SELECT id, account_id, name, status, created_at, verified_at, checked_at, vouched, misses, findings::text AS findings,
       return_path_label, return_path, return_path_misses,
       (SELECT p.policy_id FROM hosted_sts_policies p WHERE p.domain_id = domains.id) AS sts_policy_id
FROM domains WHERE account_id = $1 AND name = $2 AND deleted_at IS NULL;

-- name: find_domain
-- Read domain $2 of account $1, by id.
SELECT id, account_id, name, status, created_at, verified_at, checked_at, vouched, misses, findings::text AS findings,
       return_path_label, return_path, return_path_misses,
       (SELECT p.policy_id FROM hosted_sts_policies p WHERE p.domain_id = domains.id) AS sts_policy_id
FROM domains WHERE account_id = $1 AND id = $2 AND deleted_at IS NULL;

-- name: lock_domains
-- Lock domains $1 in the order of their ids, except removed ones.
SELECT id, account_id, name, status, created_at, verified_at, checked_at, vouched, misses, findings::text AS findings,
       return_path_label, return_path, return_path_misses,
       (SELECT p.policy_id FROM hosted_sts_policies p WHERE p.domain_id = domains.id) AS sts_policy_id
FROM domains WHERE id = ANY($1::uuid[]) AND deleted_at IS NULL ORDER BY id FOR NO KEY UPDATE;

-- name: domain_holder
-- Read the verified domain named $1 of any account, unless it is domain $2.
SELECT id, account_id, name, status, created_at, verified_at, checked_at, vouched, misses, findings::text AS findings,
       return_path_label, return_path, return_path_misses,
       (SELECT p.policy_id FROM hosted_sts_policies p WHERE p.domain_id = domains.id) AS sts_policy_id
FROM domains WHERE name = $1 AND status = 'verified' AND deleted_at IS NULL AND id <> $2;

-- name: signing_keys
-- Read active keys of domain $2 of account $1, RSA first. A removed domain still signs mail accepted before; one that was
-- added again signs with its new keys after its verification.
SELECT k.domain_id, d.name, k.selector, k.algorithm, k.sealed_key
FROM (
    SELECT id, name FROM domains WHERE account_id = $1 AND name = $2
    ORDER BY (verified_at IS NOT NULL) DESC, (deleted_at IS NULL) DESC, id DESC LIMIT 1
) d JOIN domain_keys k ON k.domain_id = d.id
WHERE k.status = 'active'
ORDER BY k.algorithm DESC, k.selector;

-- name: return_path_host
-- Read the verified return-path host of domain $2 of account $1; no row if its mail uses the service's bounce domain.
SELECT return_path_label || '.' || name AS host FROM domains
WHERE account_id = $1 AND name = $2 AND return_path = 'verified' AND status = 'verified' AND deleted_at IS NULL;

-- name: return_path_domain
-- Return whether label $1 below name $2 is the return-path host of a domain that was verified once.
SELECT EXISTS (SELECT 1 FROM domains WHERE name = $2 AND return_path_label = $1 AND verified_at IS NOT NULL) AS known;

-- name: set_return_path_label
-- Set label $3 of the return path of domain $2 of account $1, which is then unverified and checked soon.
UPDATE domains SET return_path_label = $3, return_path = 'pending', return_path_misses = 0, check_at = least(check_at, now())
WHERE account_id = $1 AND id = $2 AND deleted_at IS NULL;

-- name: published_keys
-- Read the public parts of the keys of domain $1.
SELECT domain_id, selector, algorithm, public_txt, status, retire_at
FROM domain_keys WHERE domain_id = $1 AND status <> 'retired' ORDER BY selector;

-- name: published_keys_of_many
-- Read the public parts of the keys of domains $1.
SELECT domain_id, selector, algorithm, public_txt, status, retire_at
FROM domain_keys WHERE domain_id = ANY($1::uuid[]) AND status <> 'retired' ORDER BY domain_id, selector;

-- name: owners_of_name
-- Read domains named $1 of all accounts: the verified one first, then others, then removed ones.
SELECT id, account_id, name, status, created_at, verified_at, checked_at, vouched, misses, findings::text AS findings,
       return_path_label, return_path, return_path_misses,
       (SELECT p.policy_id FROM hosted_sts_policies p WHERE p.domain_id = domains.id) AS sts_policy_id
FROM domains WHERE name = $1
ORDER BY (status = 'verified') DESC, (deleted_at IS NULL) DESC, id DESC LIMIT 10;

-- name: kept_selector
-- Read the selector with which mail of removed domain $2 of account $1 is still signed.
SELECT k.selector FROM domains d JOIN domain_keys k ON k.domain_id = d.id
WHERE d.account_id = $1 AND d.name = $2 AND d.deleted_at IS NOT NULL AND d.verified_at IS NOT NULL
  AND k.status = 'active' AND k.algorithm = 'rsa-sha256'
ORDER BY d.id DESC LIMIT 1;

-- name: insert_domain
-- Insert domain $1 of account $2 named $3, pending, with return-path label $4.
INSERT INTO domains (id, account_id, name, created_at, check_at, return_path_label)
VALUES ($1, $2, $3, clock_timestamp(), clock_timestamp() + interval '1 minute', $4);

-- name: insert_domain_key
-- Insert a key of domain $1 under selector $2: algorithm $3, sealed private key $4, record $5, status $6.
INSERT INTO domain_keys (domain_id, selector, algorithm, sealed_key, public_txt, status, created_at)
VALUES ($1, $2, $3, $4, $5, $6, now());

-- name: mark_domain
-- Set status $2 of domain $1.
UPDATE domains SET status = $2, checked_at = now(), misses = 0,
    verified_at = CASE WHEN $2 = 'verified' THEN coalesce(verified_at, now()) ELSE verified_at END
WHERE id = $1;

-- name: vouch_for_domain
-- Mark domain $1 as verified by the operator.
UPDATE domains SET status = 'verified', vouched = true, verified_at = now() WHERE id = $1;

-- name: save_check
-- Store a check of domain $1 at $2: status $3, misses $4, findings $5; the next is due $6 seconds later (null: never);
-- state $7 and misses $8 of its return path; $9 records have drifted, and $10 that were correct had no answer.
UPDATE domains SET status = $3, misses = $4, findings = $5::text::jsonb, checked_at = $2,
    check_at = $2::timestamptz + make_interval(secs => $6::float8),
    verified_at = CASE WHEN $3 = 'verified' THEN coalesce(verified_at, $2) ELSE verified_at END,
    return_path = $7, return_path_misses = $8, records_drifted = $9, records_unanswered = $10
WHERE id = $1;

-- name: claim_due
-- Claim at most $2 domains whose check is due at $1, by postponing them to $3.
UPDATE domains SET check_at = $3
WHERE id IN (
    SELECT id FROM domains
    WHERE check_at <= $1 AND deleted_at IS NULL AND account_id NOT IN (SELECT v.account_id FROM account_moves v)
    ORDER BY check_at LIMIT $2 FOR UPDATE SKIP LOCKED
)
RETURNING id, account_id, name, status, created_at, verified_at, checked_at, vouched, misses, findings::text AS findings,
       return_path_label, return_path, return_path_misses,
       (SELECT p.policy_id FROM hosted_sts_policies p WHERE p.domain_id = domains.id) AS sts_policy_id;

-- name: mail_failed
-- Queue at $4 a mail that domain $2 of account $1 is no longer verified, for reason $3, with its public id $5, to the
-- owners and admins of the account, or of its parent account.
INSERT INTO system_mail (id, kind, address, detail, due_at, created_at)
SELECT gen_random_uuid(), 'domain_failed', u.email,
       jsonb_build_object('account_name', a.name, 'domain', $2::text, 'reason', $3::text, 'id', $5::text), $4, $4
FROM accounts a
JOIN members m ON m.account_id = coalesce(a.parent_id, a.id) AND m.role IN ('owner', 'admin')
JOIN users u ON u.id = m.user_id WHERE a.id = $1;

-- name: check_soon
-- Schedule a check of domain $2 of account $1 at $3, unless one is due sooner.
UPDATE domains SET check_at = least(coalesce(check_at, $3), $3) WHERE account_id = $1 AND id = $2;

-- name: move_key
-- Set status $3 of the key of domain $1 under selector $2; a retiring key is replaced at $4.
UPDATE domain_keys SET status = $3, retire_at = $4 WHERE domain_id = $1 AND selector = $2;

-- name: ask_for_pair
-- Request the standby RSA key of domain $1 under selector $2: it signs once a check finds it published.
UPDATE domain_keys SET status = 'pending' WHERE domain_id = $1 AND selector = $2 AND status = 'standby';

-- name: due_to_retire
-- Read at most $2 keys whose retirement is due at $1.
SELECT domain_id, selector, algorithm, public_txt, status, retire_at
FROM domain_keys WHERE status = 'retiring' AND retire_at <= $1 ORDER BY retire_at LIMIT $2;

-- name: replace_retired
-- Replace the retiring key of domain $1 under selector $2 with record $3 by a new one: sealed $4, record $5.
UPDATE domain_keys SET sealed_key = $4, public_txt = $5, status = 'standby', retire_at = NULL, created_at = now()
WHERE domain_id = $1 AND selector = $2 AND public_txt = $3 AND status = 'retiring';

-- name: remove_domain
-- Mark domain $2 of account $1 as removed at $3; its keys stay.
UPDATE domains SET deleted_at = $3, status = 'failed', check_at = NULL, findings = NULL, receives_since = NULL
WHERE account_id = $1 AND id = $2 AND deleted_at IS NULL
RETURNING name;

-- name: forget_removed
-- Delete at most $2 domains removed before $1 without mail in the queue; their keys are deleted with them.
DELETE FROM domains WHERE id IN (
    SELECT d.id FROM domains d
    WHERE d.deleted_at < $1
      AND NOT EXISTS (SELECT 1 FROM queue q WHERE q.account_id = d.account_id AND q.from_domain = d.name)
    ORDER BY d.deleted_at LIMIT $2 FOR UPDATE SKIP LOCKED
)
RETURNING id;

-- name: keep_token
-- Store the sealed Cloudflare token $2 of account $1.
INSERT INTO cloudflare_tokens (account_id, sealed_token, created_at) VALUES ($1, $2, now())
ON CONFLICT (account_id) DO UPDATE SET sealed_token = excluded.sealed_token, created_at = now();

-- name: read_token
-- Read the sealed Cloudflare token of account $1.
SELECT sealed_token FROM cloudflare_tokens WHERE account_id = $1;

-- name: forget_token
-- Delete the Cloudflare token of account $1.
DELETE FROM cloudflare_tokens WHERE account_id = $1 RETURNING account_id;
