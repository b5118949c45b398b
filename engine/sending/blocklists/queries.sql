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

-- name: report_addresses
-- Report that a host sends from addresses $1, until $2; a new address is due at once.
INSERT INTO blocklist_addresses AS a (ip, reported_until) SELECT ip, $2 FROM unnest($1::text[]) AS n (ip) ORDER BY ip
ON CONFLICT (ip) DO UPDATE SET reported_until = excluded.reported_until
WHERE a.reported_until < excluded.reported_until - interval '5 minutes';

-- name: due_families
-- Return the families of the source addresses whose check is due at $1, and `domain` if that of a verified domain is.
SELECT DISTINCT CASE WHEN position(':' IN ip) > 0 THEN 'ipv6' ELSE 'ipv4' END AS family
FROM blocklist_addresses WHERE check_at <= $1
UNION ALL
SELECT 'domain' WHERE EXISTS (SELECT FROM domains WHERE blocklist_check_at <= $1 AND status = 'verified' AND deleted_at IS NULL);

-- name: save_zones
-- Store the judgements $3 with details $4, made at $5, about lists $1 of families $2, which are known until $6.
INSERT INTO blocklist_zones (name, family, trusted, detail, tested_at, known_until)
SELECT n.name, n.family, n.trusted, n.detail, $5, $6
FROM unnest($1::text[], $2::text[], $3::boolean[], $4::text[]) AS n (name, family, trusted, detail)
ORDER BY n.name, n.family
ON CONFLICT (name, family) DO UPDATE
SET trusted = excluded.trusted, detail = excluded.detail, tested_at = excluded.tested_at,
    known_until = greatest(blocklist_zones.known_until, excluded.known_until);

-- name: claim_addresses
-- Claim at most $2 source addresses of IP versions $4 whose check is due at $1, by postponing it to $3.
UPDATE blocklist_addresses SET check_at = $3
WHERE ip IN (
    SELECT ip FROM blocklist_addresses
    WHERE check_at <= $1 AND CASE WHEN position(':' IN ip) > 0 THEN 6 ELSE 4 END = ANY ($4::int[])
    ORDER BY check_at LIMIT $2 FOR UPDATE SKIP LOCKED
)
RETURNING ip AS target, NULL::uuid AS domain_id;

-- name: claim_domains
-- Claim at most $2 verified domains whose check is due at $1, by postponing it to $3.
UPDATE domains SET blocklist_check_at = $3
WHERE id IN (
    SELECT id FROM domains WHERE blocklist_check_at <= $1 AND status = 'verified' AND deleted_at IS NULL
    ORDER BY blocklist_check_at LIMIT $2 FOR UPDATE SKIP LOCKED
)
RETURNING name AS target, id AS domain_id;

-- name: save_listed
-- Store at $5 that lists $3 name targets $2 of kinds $1 with answers $4; return the listings that began. An open listing
-- goes on.
WITH saved AS (
    INSERT INTO blocklist_listings (kind, target, zone, answer, listed_since, last_seen)
    SELECT n.kind, n.target, n.zone, n.answer, $5, $5
    FROM unnest($1::text[], $2::text[], $3::text[], $4::text[]) AS n (kind, target, zone, answer)
    ORDER BY n.kind, n.target, n.zone
    ON CONFLICT (kind, target, zone) WHERE ended_at IS NULL
    DO UPDATE SET answer = excluded.answer, last_seen = excluded.last_seen
    RETURNING kind, target, zone, xmax = 0 AS is_new
)
SELECT kind, target, zone, 'listing began' AS change FROM saved WHERE is_new;

-- name: save_not_listed
-- End at $4 the listings of targets $2 of kinds $1 on lists $3; return them.
UPDATE blocklist_listings l SET ended_at = $4
FROM unnest($1::text[], $2::text[], $3::text[]) AS n (kind, target, zone)
WHERE l.kind = n.kind AND l.target = n.target AND l.zone = n.zone AND l.ended_at IS NULL
RETURNING l.kind, l.target, l.zone, 'listing ended' AS change;

-- name: finish_addresses
-- Store the checks at $4 of addresses $1: the next one at $2, measured until $3 (null: no list had an answer).
UPDATE blocklist_addresses a
SET check_at = n.check_at, measured_until = coalesce(n.measured_until, a.measured_until),
    checked_at = CASE WHEN n.measured_until IS NULL THEN a.checked_at ELSE $4 END
FROM unnest($1::text[], $2::timestamptz[], $3::timestamptz[]) AS n (ip, check_at, measured_until) WHERE a.ip = n.ip;

-- name: finish_domains
-- Store the checks of domains $1: the next one at $2, measured until $3 (null: no list had an answer).
UPDATE domains d
SET blocklist_check_at = n.check_at,
    blocklist_measured_until = coalesce(n.measured_until, d.blocklist_measured_until)
FROM unnest($1::uuid[], $2::timestamptz[], $3::timestamptz[]) AS n (id, check_at, measured_until) WHERE d.id = n.id;

-- name: forget_zones
-- Delete the lists that no settings have named up to $1.
DELETE FROM blocklist_zones WHERE known_until < $1;

-- name: forget_addresses
-- Delete the addresses that no host has sent from up to $1.
DELETE FROM blocklist_addresses WHERE reported_until < $1;

-- name: end_orphans
-- End at $1 the listings of lists and addresses that were deleted.
UPDATE blocklist_listings l SET ended_at = $1
WHERE l.ended_at IS NULL AND (
    NOT EXISTS (SELECT FROM blocklist_zones z WHERE z.name = l.zone AND (z.family = 'domain') = (l.kind = 'domain'))
    OR l.kind = 'ip' AND NOT EXISTS (SELECT FROM blocklist_addresses a WHERE a.ip = l.target));

-- name: forget_unverified
-- Delete the listings of domains that are no longer verified; their names may not outlive the account.
DELETE FROM blocklist_listings l WHERE l.kind = 'domain' AND NOT EXISTS (
    SELECT FROM domains d WHERE d.name = l.target AND d.status = 'verified' AND d.deleted_at IS NULL);

-- name: forget_ended
-- Delete listings that ended before $1, at most $2.
DELETE FROM blocklist_listings WHERE ctid IN (
    SELECT ctid FROM blocklist_listings WHERE ended_at < $1 ORDER BY ended_at LIMIT $2);

-- name: list_zones
-- Return all lists, as the workers' settings name them.
SELECT name, family, trusted, detail, tested_at FROM blocklist_zones ORDER BY family = 'domain', name, family;

-- name: list_addresses
-- Return the source addresses, with the lists that name each.
SELECT a.ip, a.checked_at, a.measured_until > $1 AS measured,
       ARRAY(SELECT l.zone FROM blocklist_listings l
             WHERE l.kind = 'ip' AND l.target = a.ip AND l.ended_at IS NULL ORDER BY l.zone) AS listed_on
FROM blocklist_addresses a ORDER BY a.ip;

-- name: list_listings
-- Return the present listings, addresses first, then the latest, at most $1; with the account that holds the domain.
SELECT l.kind, l.target, l.zone, l.answer, l.listed_since, l.last_seen, d.account_id
FROM blocklist_listings l
LEFT JOIN domains d ON l.kind = 'domain' AND d.name = l.target AND d.status = 'verified' AND d.deleted_at IS NULL
WHERE l.ended_at IS NULL ORDER BY l.kind DESC, l.listed_since DESC, l.target, l.zone LIMIT $1;

-- name: count_listed
-- Count the addresses and domains that are on a list now.
SELECT count(DISTINCT target) FILTER (WHERE kind = 'ip') AS addresses,
       count(DISTINCT target) FILTER (WHERE kind = 'domain') AS domains
FROM blocklist_listings WHERE ended_at IS NULL;

-- name: make_addresses_due
-- Make the check of every source address due.
UPDATE blocklist_addresses SET check_at = '-infinity';

-- name: make_domain_due
-- Make the check of the verified domain $1 due; return its name.
UPDATE domains SET blocklist_check_at = '-infinity' WHERE name = $1 AND status = 'verified' AND deleted_at IS NULL
RETURNING name;
