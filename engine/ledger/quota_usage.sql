-- name: day_counts
-- Return the outcomes of the mail of accounts $1 on day $2 without simulated mail, and the number of simulated
-- messages.
SELECT n.account_id, coalesce(d.bounced, 0) - coalesce(s.bounced, 0) AS bounced,
       coalesce(d.complained, 0) - coalesce(s.complained, 0) AS complained,
       coalesce(d.delivered + d.bounced + d.failed, 0) - coalesce(s.settled, 0) AS settled,
       coalesce(s.messages, 0) AS simulated
FROM unnest($1::uuid[]) AS n (account_id)
LEFT JOIN account_days d ON d.account_id = n.account_id AND d.day = $2
LEFT JOIN simulated_days s ON s.account_id = n.account_id AND s.day = $2;

-- name: lease_ceiling
-- Lease from day $1 at least $2 (need) and up to $3 (chunk) messages under the ceiling $4. Chunks shrink near the
-- ceiling, so that other processes hold little unused when it is reached.
WITH day AS (
    INSERT INTO platform_days AS p (day) VALUES ($1) ON CONFLICT (day) DO UPDATE SET leased = p.leased RETURNING leased
), take AS (
    SELECT greatest(0, least($4::bigint - leased, greatest($2::bigint, least($3::bigint, ($4::bigint - leased) / 16)))) AS n
    FROM day
)
SELECT n AS granted FROM take;

-- name: left_of_ceiling
-- Return how much of the ceiling $2 no process has leased on day $1.
SELECT $2::bigint - coalesce((SELECT leased FROM platform_days WHERE day = $1), 0) AS left_over;

-- name: add_leased
-- Add $2 leased messages to day $1 (negative: returned).
UPDATE platform_days SET leased = leased + $2 WHERE day = $1;

-- name: count_simulated
-- Add to accounts $1 on days $2 the simulated messages $3 and their recipients settled $4, bounced $5, complained $6.
INSERT INTO simulated_days AS d (account_id, day, messages, settled, bounced, complained)
SELECT account_id, day, sum(messages), sum(settled), sum(bounced), sum(complained)
FROM unnest($1::uuid[], $2::date[], $3::int[], $4::int[], $5::int[], $6::int[])
     AS n (account_id, day, messages, settled, bounced, complained)
GROUP BY account_id, day ORDER BY account_id, day
ON CONFLICT (account_id, day) DO UPDATE
SET messages = d.messages + excluded.messages, settled = d.settled + excluded.settled,
    bounced = d.bounced + excluded.bounced, complained = d.complained + excluded.complained;
