-- name: day_counts
-- What became of the mail of accounts $1 on day $2.
SELECT account_id, bounced, complained, delivered + bounced + failed AS settled FROM account_days WHERE account_id = ANY($1::uuid[]) AND day = $2;

-- name: lease_ceiling
-- Lease from day $1 at least $2 (need) and up to $3 (chunk) messages under the ceiling $4. Chunks shrink as the
-- ceiling comes near, so that little of it lies unused with other processes when it is reached.
WITH day AS (
    INSERT INTO platform_days AS p (day) VALUES ($1) ON CONFLICT (day) DO UPDATE SET leased = p.leased RETURNING leased
), take AS (
    SELECT greatest(0, least($4::bigint - leased, greatest($2::bigint, least($3::bigint, ($4::bigint - leased) / 16)))) AS n
    FROM day
)
SELECT n AS granted FROM take;

-- name: add_leased
-- Day $1: $2 more messages are leased (negative: given back).
UPDATE platform_days SET leased = leased + $2 WHERE day = $1;
