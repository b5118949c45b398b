-- name: domain_names
-- Names and standing of the domains of account $1.
SELECT name, status FROM domains WHERE account_id = $1;

-- name: list_domains
-- Domains of account $1 older than id $2 (null: from the newest), at most $3.
SELECT id, account_id, name, status, created_at, verified_at, checked_at
FROM domains WHERE account_id = $1 AND ($2::uuid IS NULL OR id < $2) ORDER BY id DESC LIMIT $3;

-- name: read_domain
-- Domain $2 of account $1, by name.
SELECT id, account_id, name, status, created_at, verified_at, checked_at
FROM domains WHERE account_id = $1 AND name = $2;

-- name: signing_keys
-- Active keys of account $1's domain $2, RSA first.
SELECT k.domain_id, d.name, k.selector, k.algorithm, k.sealed_key
FROM domains d JOIN domain_keys k ON k.domain_id = d.id
WHERE d.account_id = $1 AND d.name = $2 AND k.status = 'active'
ORDER BY k.algorithm DESC, k.selector;

-- name: published_keys
-- The key records that the owner of domain $1 is asked to publish.
SELECT domain_id, selector, algorithm, public_txt, status
FROM domain_keys WHERE domain_id = $1 AND status <> 'retired' ORDER BY selector;

-- name: published_at
-- The key records of selector $1 of any domain named $2.
SELECT k.domain_id, k.selector, k.algorithm, k.public_txt, k.status
FROM domains d JOIN domain_keys k ON k.domain_id = d.id
WHERE d.name = $2 AND k.selector = $1 AND k.status <> 'retired';

-- name: insert_domain
-- Domain $1 of account $2 named $3, pending.
INSERT INTO domains (id, account_id, name) VALUES ($1, $2, $3);

-- name: insert_domain_key
-- Key of domain $1 under selector $2: algorithm $3, sealed private key $4, record $5, status $6.
INSERT INTO domain_keys (domain_id, selector, algorithm, sealed_key, public_txt, status)
VALUES ($1, $2, $3, $4, $5, $6);

-- name: mark_domain
-- Domain $1 was checked: status $2.
UPDATE domains SET status = $2, checked_at = now(),
    verified_at = CASE WHEN $2 = 'verified' THEN coalesce(verified_at, now()) ELSE verified_at END
WHERE id = $1;

-- name: activate_key
-- The record of domain $1's selector $2 was found published ($3): sign with it, or stop.
UPDATE domain_keys SET status = CASE WHEN $3 THEN 'active' ELSE 'pending' END
WHERE domain_id = $1 AND selector = $2 AND status <> 'retired';
