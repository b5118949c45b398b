-- name: addresses_of_domains
-- Count the claimed addresses of domains $1, and tell whether any is enabled and the domain receives.
SELECT d.id AS domain_id, count(a.id) AS addresses,
       d.receives_since IS NOT NULL AND coalesce(bool_or(a.enabled), false) AS takes_mail
FROM domains d LEFT JOIN inbound_addresses a ON a.domain_id = d.id
WHERE d.id = ANY ($1::uuid[]) GROUP BY d.id;

-- name: managed_addresses
-- Count the addresses of account $1 under its managed receiving domain $2, and its addresses in all.
SELECT o.plan, o.agreed_caps, l.opened_at IS NOT NULL AS is_open, count(a.id) AS used,
       count(a.id) FILTER (WHERE split_part(a.canonical, '@', 2) = $2) AS addresses,
       count(a.id) FILTER (WHERE split_part(a.canonical, '@', 2) = $2 AND a.enabled) AS enabled
FROM accounts o JOIN receiving_labels l ON l.account_id = o.id LEFT JOIN inbound_addresses a ON a.account_id = o.id
WHERE o.id = $1 GROUP BY o.plan, o.agreed_caps, l.opened_at;
