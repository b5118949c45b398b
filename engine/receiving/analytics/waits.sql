-- name: wait_times_of
-- Return the stored histograms of sums of an account; sums without one are left out.
SELECT w.hour, w.provider, w.stream, w.from_domain, w.times
FROM :wanted JOIN delivery_waits w ON w.account_id = :account::uuid AND w.hour = wanted.hour
    AND w.provider = wanted.provider AND w.stream = wanted.stream AND w.from_domain = wanted.from_domain;

-- name: add_waits
-- Add to the sums of an account, whose record of counts is locked, and replace their histograms.
INSERT INTO delivery_waits AS w (account_id, :added.names)
SELECT :account::uuid, added.* FROM :added ORDER BY hour, provider, stream, from_domain
ON CONFLICT (account_id, hour, provider, stream, from_domain) DO UPDATE
SET attempts = w.attempts + excluded.attempts, schedule = w.schedule + excluded.schedule,
    queue = w.queue + excluded.queue, site_limits = w.site_limits + excluded.site_limits,
    other_accounts = w.other_accounts + excluded.other_accounts, own_mail = w.own_mail + excluded.own_mail,
    connection = w.connection + excluded.connection, transaction = w.transaction + excluded.transaction,
    retry = w.retry + excluded.retry, fair_shares = w.fair_shares + excluded.fair_shares, times = excluded.times;

-- name: wait_sums
-- Sum the attempts of account $1 from $2 to before $3: of provider $4, streams $5 and sending domains $6 (null: all), by
-- $7: 'provider', or 'hour' or 'day' by its begin.
SELECT CASE $7::text WHEN 'provider' THEN provider
           ELSE to_char(date_trunc($7, hour AT TIME ZONE 'UTC'), 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') END AS name,
       sum(attempts)::bigint AS attempts, sum(schedule)::bigint AS schedule, sum(queue)::bigint AS queue,
       sum(site_limits)::bigint AS site_limits, sum(other_accounts)::bigint AS other_accounts,
       sum(own_mail)::bigint AS own_mail, sum(connection)::bigint AS connection,
       sum(transaction)::bigint AS "transaction", sum(retry)::bigint AS retry, sum(fair_shares) AS fair_shares,
       string_agg(times, '') AS times
FROM delivery_waits
WHERE account_id = $1 AND hour >= $2 AND hour < $3 AND ($4::text IS NULL OR provider = $4)
  AND ($5::text[] IS NULL OR stream = ANY ($5)) AND ($6::text[] IS NULL OR from_domain = ANY ($6))
GROUP BY name ORDER BY name;

-- name: forget_waits
-- Delete at most $2 sums of hours before the day $1; return how many there were. An account that has agreed on more days
-- of analytics than $3 keeps them for as many days longer.
WITH gone AS (
    DELETE FROM delivery_waits WHERE ctid = ANY (ARRAY(
        SELECT w.ctid FROM delivery_waits w JOIN accounts a ON a.id = w.account_id
        WHERE w.hour < $1::date AT TIME ZONE 'UTC'
          AND w.hour < ($1::date - greatest(0, coalesce((a.agreed_caps->>'analytics_days')::int, 0) - $3::int))
              AT TIME ZONE 'UTC'
        LIMIT $2))
    RETURNING 1
)
SELECT count(*) AS groups FROM gone;
