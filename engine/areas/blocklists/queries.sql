-- name: address_listings
-- Return the listings of source addresses, which concern every account.
SELECT l.target, l.kind, l.zone, l.listed_since
FROM blocklist_listings l JOIN blocklist_addresses a ON a.ip = l.target
WHERE l.kind = 'ip' AND l.ended_at IS NULL ORDER BY l.target, l.zone;

-- name: domain_listings
-- Return the listings of the verified domains of accounts $1.
SELECT d.account_id, l.target, l.kind, l.zone, l.listed_since
FROM blocklist_listings l JOIN domains d ON d.name = l.target AND d.status = 'verified' AND d.deleted_at IS NULL
WHERE l.kind = 'domain' AND l.ended_at IS NULL AND d.account_id = ANY ($1::uuid[])
ORDER BY d.account_id, l.target, l.zone;

-- name: addresses_measured
-- Return a row if at $1 a recent check of a source address had an answer that can be trusted.
SELECT 1 AS measured FROM blocklist_addresses WHERE measured_until > $1 LIMIT 1;

-- name: accounts_measured
-- Return those of accounts $1 with a verified domain whose recent check, at $2, had an answer that can be trusted.
SELECT a.id AS account_id FROM unnest($1::uuid[]) AS a (id)
WHERE EXISTS (SELECT FROM domains d WHERE d.account_id = a.id AND d.status = 'verified' AND d.deleted_at IS NULL
              AND d.blocklist_measured_until > $2);
