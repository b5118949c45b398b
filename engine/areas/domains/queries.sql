-- name: domain_names
-- Names and standing of the domains of account $1.
SELECT name, status FROM domains WHERE account_id = $1 AND deleted_at IS NULL;

-- name: list_domains
-- Domains of account $1 older than id $2 (null: from the newest), at most $3.
SELECT id, account_id, name, status, created_at, verified_at, checked_at, vouched, misses, findings::text AS findings
FROM domains WHERE account_id = $1 AND deleted_at IS NULL AND ($2::uuid IS NULL OR id < $2) ORDER BY id DESC LIMIT $3;

-- name: read_domain
-- Domain $2 of account $1, by name.
SELECT id, account_id, name, status, created_at, verified_at, checked_at, vouched, misses, findings::text AS findings
FROM domains WHERE account_id = $1 AND name = $2 AND deleted_at IS NULL;

-- name: find_domain
-- Domain $2 of account $1, by id.
SELECT id, account_id, name, status, created_at, verified_at, checked_at, vouched, misses, findings::text AS findings
FROM domains WHERE account_id = $1 AND id = $2 AND deleted_at IS NULL;

-- name: lock_domains
-- Domains $1, locked in the order of their ids; a removed one is left out.
SELECT id, account_id, name, status, created_at, verified_at, checked_at, vouched, misses, findings::text AS findings
FROM domains WHERE id = ANY($1::uuid[]) AND deleted_at IS NULL ORDER BY id FOR NO KEY UPDATE;

-- name: domain_holder
-- The domain named $1 that is verified, on whatever account, unless it is domain $2.
SELECT id, account_id, name, status, created_at, verified_at, checked_at, vouched, misses, findings::text AS findings
FROM domains WHERE name = $1 AND status = 'verified' AND deleted_at IS NULL AND id <> $2;

-- name: signing_keys
-- Active keys of account $1's domain $2, RSA first. A removed domain still signs what was accepted from it; one that
-- was added again signs from its own verification on.
SELECT k.domain_id, d.name, k.selector, k.algorithm, k.sealed_key
FROM (
    SELECT id, name FROM domains WHERE account_id = $1 AND name = $2
    ORDER BY (verified_at IS NOT NULL) DESC, (deleted_at IS NULL) DESC, id DESC LIMIT 1
) d JOIN domain_keys k ON k.domain_id = d.id
WHERE k.status = 'active'
ORDER BY k.algorithm DESC, k.selector;

-- name: published_keys
-- The public halves of the keys of domain $1.
SELECT domain_id, selector, algorithm, public_txt, status, retire_at
FROM domain_keys WHERE domain_id = $1 AND status <> 'retired' ORDER BY selector;

-- name: published_keys_of_many
-- The public halves of the keys of domains $1.
SELECT domain_id, selector, algorithm, public_txt, status, retire_at
FROM domain_keys WHERE domain_id = ANY($1::uuid[]) AND status <> 'retired' ORDER BY domain_id, selector;

-- name: owners_of_name
-- Every domain named $1, on whatever account: the holder first, then those that want it, then those removed.
SELECT id, account_id, name, status, created_at, verified_at, checked_at, vouched, misses, findings::text AS findings
FROM domains WHERE name = $1
ORDER BY (status = 'verified') DESC, (deleted_at IS NULL) DESC, id DESC LIMIT 10;

-- name: kept_selector
-- The selector that mail of account $1's removed domain $2 is still signed with.
SELECT k.selector FROM domains d JOIN domain_keys k ON k.domain_id = d.id
WHERE d.account_id = $1 AND d.name = $2 AND d.deleted_at IS NOT NULL AND d.verified_at IS NOT NULL
  AND k.status = 'active' AND k.algorithm = 'rsa-sha256'
ORDER BY d.id DESC LIMIT 1;

-- name: insert_domain
-- Domain $1 of account $2 named $3, pending.
INSERT INTO domains (id, account_id, name, created_at) VALUES ($1, $2, $3, clock_timestamp());

-- name: insert_domain_key
-- Key of domain $1 under selector $2: algorithm $3, sealed private key $4, record $5, status $6.
INSERT INTO domain_keys (domain_id, selector, algorithm, sealed_key, public_txt, status)
VALUES ($1, $2, $3, $4, $5, $6);

-- name: mark_domain
-- Domain $1 has status $2 from now on.
UPDATE domains SET status = $2, checked_at = now(), misses = 0,
    verified_at = CASE WHEN $2 = 'verified' THEN coalesce(verified_at, now()) ELSE verified_at END
WHERE id = $1;

-- name: vouch_for_domain
-- Domain $1 is verified by the operator's word.
UPDATE domains SET status = 'verified', vouched = true, verified_at = now() WHERE id = $1;

-- name: save_check
-- Domain $1 was checked at $2: status $3, misses $4, findings $5; the next check is due $6 seconds later (null: never).
UPDATE domains SET status = $3, misses = $4, findings = $5::text::jsonb, checked_at = $2,
    check_at = $2::timestamptz + make_interval(secs => $6::float8),
    verified_at = CASE WHEN $3 = 'verified' THEN coalesce(verified_at, $2) ELSE verified_at END
WHERE id = $1;

-- name: claim_due
-- At most $2 domains whose check is due at $1, put off to $3, so that no other worker takes them meanwhile.
UPDATE domains SET check_at = $3
WHERE id IN (
    SELECT id FROM domains WHERE check_at <= $1 AND deleted_at IS NULL ORDER BY check_at LIMIT $2 FOR UPDATE SKIP LOCKED
)
RETURNING id, account_id, name, status, created_at, verified_at, checked_at, vouched, misses, findings::text AS findings;

-- name: check_soon
-- Domain $2 of account $1 is to be checked at $3, unless it is due sooner.
UPDATE domains SET check_at = least(coalesce(check_at, $3), $3) WHERE account_id = $1 AND id = $2;

-- name: move_key
-- The key of domain $1 under selector $2 has status $3 from now on, until $4 where it retires.
UPDATE domain_keys SET status = $3, retire_at = $4 WHERE domain_id = $1 AND selector = $2;

-- name: ask_for_pair
-- Domain $1's waiting RSA key under selector $2 signs as soon as it is found published.
UPDATE domain_keys SET status = 'pending' WHERE domain_id = $1 AND selector = $2 AND status = 'standby';

-- name: due_to_retire
-- Keys whose time to retire has come at $1, at most $2.
SELECT domain_id, selector, algorithm, public_txt, status, retire_at
FROM domain_keys WHERE status = 'retiring' AND retire_at <= $1 ORDER BY retire_at LIMIT $2;

-- name: replace_retired
-- The retired key of domain $1 under selector $2, with record $3, makes place for a fresh one: sealed $4, record $5.
UPDATE domain_keys SET sealed_key = $4, public_txt = $5, status = 'standby', retire_at = NULL, created_at = now()
WHERE domain_id = $1 AND selector = $2 AND public_txt = $3 AND status = 'retiring';

-- name: remove_domain
-- Domain $2 of account $1 is gone for its owner at $3; its keys stay.
UPDATE domains SET deleted_at = $3, status = 'failed', check_at = NULL, findings = NULL
WHERE account_id = $1 AND id = $2 AND deleted_at IS NULL
RETURNING name;

-- name: forget_removed
-- Domains removed before $1 that no queued mail names any more, at most $2; their keys go with them.
DELETE FROM domains WHERE id IN (
    SELECT d.id FROM domains d
    WHERE d.deleted_at < $1
      AND NOT EXISTS (SELECT 1 FROM queue q WHERE q.account_id = d.account_id AND q.from_domain = d.name)
    ORDER BY d.deleted_at LIMIT $2 FOR UPDATE SKIP LOCKED
)
RETURNING id;

-- name: keep_token
-- The Cloudflare token of account $1, sealed: $2.
INSERT INTO cloudflare_tokens (account_id, sealed_token) VALUES ($1, $2)
ON CONFLICT (account_id) DO UPDATE SET sealed_token = excluded.sealed_token, created_at = now();

-- name: read_token
-- The sealed Cloudflare token of account $1.
SELECT sealed_token FROM cloudflare_tokens WHERE account_id = $1;

-- name: forget_token
-- Account $1's Cloudflare token is forgotten.
DELETE FROM cloudflare_tokens WHERE account_id = $1 RETURNING account_id;
