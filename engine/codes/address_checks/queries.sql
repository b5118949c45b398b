-- name: read_payer
-- Read the account that pays for the checks of account $1, its plan, and the checks used in month $2.
SELECT p.id, p.plan, p.agreed_caps,
       coalesce((SELECT used FROM plan_usage WHERE account_id = p.id AND resource = 'address_checks' AND month = $2), 0) AS used
FROM accounts a JOIN accounts p ON p.id = coalesce(a.parent_id, a.id) WHERE a.id = $1;

-- name: reserve_checks
-- Reserve checks $4 of payer $2 in month $3 under id $1, for a minute; no row if the month would have more than $5.
WITH counted AS (
    INSERT INTO plan_usage AS u (account_id, resource, month, used)
    SELECT $2, 'address_checks', $3, $4::int WHERE $4::int <= $5::int
    ON CONFLICT (account_id, resource, month) DO UPDATE SET used = u.used + $4::int WHERE u.used + $4::int <= $5::int
    RETURNING account_id
)
INSERT INTO address_check_reservations (id, account_id, month, checks, expires_at)
SELECT $1, account_id, $3, $4::int, clock_timestamp() + interval '1 minute' FROM counted
RETURNING id;

-- name: charge_checks
-- End reservation $1: charge $2 of its checks and give the others back.
WITH ended AS (
    DELETE FROM address_check_reservations WHERE id = $1 RETURNING account_id, month, checks
)
UPDATE plan_usage u SET used = u.used - (ended.checks - $2::int) FROM ended
WHERE u.account_id = ended.account_id AND u.resource = 'address_checks' AND u.month = ended.month;

-- name: give_back_expired
-- Give back the reservations of processes that died.
WITH ended AS (
    DELETE FROM address_check_reservations WHERE expires_at <= statement_timestamp() RETURNING account_id, month, checks
), summed AS (
    SELECT account_id, month, sum(checks) AS checks FROM ended GROUP BY account_id, month
)
UPDATE plan_usage u SET used = u.used - summed.checks FROM summed
WHERE u.account_id = summed.account_id AND u.resource = 'address_checks' AND u.month = summed.month;

-- name: suppressed_of
-- Return those of the canonical addresses $2 that account $1 suppresses, with the reasons.
SELECT address, reason FROM suppressions WHERE account_id = $1 AND address = ANY ($2::text[])
UNION
SELECT n.address, e.reason FROM unnest($2::text[]) AS n (address)
CROSS JOIN LATERAL (SELECT key FROM erasure_keys WHERE account_id = $1 OFFSET 0) k
JOIN erased_suppressions e ON e.account_id = $1 AND e.digest = address_digest(k.key, n.address);
