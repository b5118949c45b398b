-- name: page_of_domains
-- List domains of account $1 with ids below $2 (null: from the newest) and names $3 (null: all), newest first, at most $4.
SELECT id, account_id, name, status, created_at, verified_at, checked_at, vouched, misses, findings::text AS findings
FROM domains
WHERE account_id = $1 AND deleted_at IS NULL AND ($2::uuid IS NULL OR id < $2)
  AND ($3::text[] IS NULL OR name = ANY ($3))
ORDER BY id DESC LIMIT $4;

-- name: addresses_of_domains
-- Count the claimed addresses of domains $1, and tell whether any is enabled and the domain receives.
SELECT d.id AS domain_id, count(a.id) AS addresses,
       d.receives_since IS NOT NULL AND coalesce(bool_or(a.enabled), false) AS takes_mail
FROM domains d LEFT JOIN inbound_addresses a ON a.domain_id = d.id
WHERE d.id = ANY ($1::uuid[]) GROUP BY d.id;

-- name: managed_addresses
-- Count the addresses of account $1 under its managed receiving domain $2, and its addresses in all.
SELECT o.plan, l.opened_at IS NOT NULL AS is_open, count(a.id) AS used,
       count(a.id) FILTER (WHERE split_part(a.canonical, '@', 2) = $2) AS addresses,
       count(a.id) FILTER (WHERE split_part(a.canonical, '@', 2) = $2 AND a.enabled) AS enabled
FROM accounts o JOIN receiving_labels l ON l.account_id = o.id LEFT JOIN inbound_addresses a ON a.account_id = o.id
WHERE o.id = $1 GROUP BY o.plan, l.opened_at;
