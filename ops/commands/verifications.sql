-- name: verification_counts
-- Count the kept verifications of account $1 (null: of those with the most) by status, with the codes and address checks
-- of month $2 and the locked destinations, for at most $3 accounts.
SELECT v.account_id, a.name AS account, count(*) FILTER (WHERE v.status = 'pending') AS pending,
       count(*) FILTER (WHERE v.status = 'approved') AS approved, count(*) FILTER (WHERE v.status = 'expired') AS expired,
       count(*) FILTER (WHERE v.status = 'cancelled') AS cancelled, count(*) FILTER (WHERE v.status = 'exhausted') AS exhausted,
       coalesce((SELECT used FROM plan_usage u WHERE u.account_id = coalesce(a.parent_id, a.id)
                 AND u.resource = 'verifications' AND u.month = $2), 0) AS codes_this_month,
       coalesce((SELECT used FROM plan_usage u WHERE u.account_id = coalesce(a.parent_id, a.id)
                 AND u.resource = 'address_checks' AND u.month = $2), 0) AS checks_this_month,
       (SELECT count(*) FROM verification_destinations d
        WHERE d.account_id = v.account_id AND d.locked_until > clock_timestamp()) AS locked
FROM verifications v JOIN accounts a ON a.id = v.account_id
WHERE $1::uuid IS NULL OR v.account_id = $1
GROUP BY v.account_id, a.id, a.name, a.parent_id ORDER BY count(*) DESC, v.account_id LIMIT $3;

-- name: locked_destinations
-- Return the destinations of account $1 (null: of all) that are locked or got ten codes within an hour, at most $2.
SELECT d.account_id, a.name AS account, left(encode(d.destination, 'hex'), 12) AS digest,
       CASE WHEN d.locked_until > clock_timestamp() THEN d.locked_until END AS locked_until, sent.codes AS codes_in_hour
FROM verification_destinations d JOIN accounts a ON a.id = d.account_id
CROSS JOIN LATERAL (
    SELECT count(*) AS codes FROM unnest(d.sent_at) AS one WHERE one > clock_timestamp() - interval '1 hour') AS sent
WHERE ($1::uuid IS NULL OR d.account_id = $1) AND (d.locked_until > clock_timestamp() OR sent.codes >= 10)
ORDER BY d.locked_until DESC NULLS LAST, d.account_id, d.destination LIMIT $2;
