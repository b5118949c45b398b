-- name: rate_sums
-- Sum the outcomes of account $1 on UTC days after $2.
SELECT coalesce(sum(settled), 0)::bigint AS settled, coalesce(sum(complained), 0)::bigint AS complained
FROM outcome_days WHERE account_id = $1 AND day > $2;
