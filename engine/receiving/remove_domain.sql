-- name: remove_claims
-- Delete the addresses, routes and MTA-STS policy of domain $2 of account $1, and count them.
WITH address AS (
    DELETE FROM inbound_addresses WHERE account_id = $1 AND domain_id = $2 RETURNING id
), route AS (
    DELETE FROM inbound_routes r
    WHERE r.account_id = $1 AND (r.domain_id = $2
          OR r.address_id IN (SELECT a.id FROM inbound_addresses a WHERE a.account_id = $1 AND a.domain_id = $2))
    RETURNING r.id
), policy AS (
    DELETE FROM hosted_sts_policies WHERE account_id = $1 AND domain_id = $2 RETURNING domain_id
)
SELECT (SELECT count(*) FROM address) AS inbound_addresses, (SELECT count(*) FROM route) AS inbound_routes,
       (SELECT count(*) FROM policy) AS mta_sts_policies;
