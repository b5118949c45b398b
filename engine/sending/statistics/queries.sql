-- fragment: live_quarters
-- Quarter hours of account $1 with events after the last count, from the first of $2 to before $3: they are counted now.
-- The seq has both bounds because the planner would estimate a third of the log otherwise.
record AS MATERIALIZED (
    SELECT coalesce(r.counted_seq, 0) AS seq, h.seq AS tip, coalesce(r.first_quarter, 0) AS first_quarter,
           uuid7_floor((extract(epoch FROM coalesce(r.counted_at, 'epoch') - interval '1 day') * 1000)::bigint) AS since
    FROM account_heads h LEFT JOIN account_records r ON r.account_id = h.account_id WHERE h.account_id = $1
), touched AS MATERIALIZED (
    SELECT DISTINCT uuid7_quarter(e.message_id) AS quarter FROM events e
    WHERE e.account_id = $1 AND e.seq > (SELECT seq FROM record) AND e.seq <= (SELECT tip FROM record)
      AND e.id >= (SELECT since FROM record) AND e.message_id IS NOT NULL
), live AS MATERIALIZED (
    SELECT quarter FROM touched
    WHERE quarter >= (SELECT first_quarter FROM record) AND quarter >= ($2::int[])[1] AND quarter < $3
)

-- fragment: sums_by_day
-- The counts of the days that begin at the quarter hours $2.
SELECT width_bucket(quarter, $2::int[])::int AS place, sum(accepted)::bigint AS accepted, sum(queued)::bigint AS queued,
       sum(sending)::bigint AS sending, sum(delivered)::bigint AS delivered, sum(bounced)::bigint AS bounced,
       sum(complained)::bigint AS complained, sum(failed)::bigint AS failed, sum(rejected)::bigint AS rejected,
       sum(scheduled)::bigint AS scheduled, sum(canceled)::bigint AS canceled
FROM counted WHERE ($4::text[] IS NULL OR from_domain = ANY ($4)) AND ($5::text[] IS NULL OR stream = ANY ($5))
GROUP BY 1

-- name: counts_by_day
-- Count messages of account $1 by day of creation, in one snapshot. Days begin at quarter hours $2 (ascending), the last
-- ends before $3; of sending domains $4 and streams $5 (null: all).
WITH :live_quarters, counted AS (
    SELECT q.quarter, q.from_domain, q.stream, q.accepted, q.queued, q.sending, q.delivered, q.bounced, q.complained,
           q.failed, q.rejected, q.scheduled, q.canceled
    FROM message_quarters q
    WHERE q.account_id = $1 AND q.quarter >= ($2::int[])[1] AND q.quarter < $3
      AND NOT EXISTS (SELECT 1 FROM live WHERE live.quarter = q.quarter)
    UNION ALL
    SELECT live.quarter, c.* FROM live CROSS JOIN LATERAL count_messages_by_stream($1, live.quarter) c
)
:sums_by_day;

-- name: counts_by_day_of_tag
-- Count messages of account $1 with tag $6 by day of creation, as `counts_by_day` does.
WITH :live_quarters, counted AS (
    SELECT q.quarter, q.from_domain, q.stream, q.accepted, q.queued, q.sending, q.delivered, q.bounced, q.complained,
           q.failed, q.rejected, q.scheduled, q.canceled
    FROM message_tag_quarters q
    WHERE q.account_id = $1 AND q.tag = $6 AND q.quarter >= ($2::int[])[1] AND q.quarter < $3
      AND NOT EXISTS (SELECT 1 FROM live WHERE live.quarter = q.quarter)
    UNION ALL
    SELECT live.quarter, c.from_domain, c.stream, c.accepted, c.queued, c.sending, c.delivered, c.bounced, c.complained,
           c.failed, c.rejected, c.scheduled, c.canceled
    FROM live CROSS JOIN LATERAL count_messages_by_tag($1, live.quarter, $6) c
)
:sums_by_day;

-- name: used_by_day
-- Read the usage of account $1 by UTC day, from day $2 to before day $3: accepted messages, counted or only in the log
-- so far, and outcomes of recipients.
WITH record AS MATERIALIZED (
    SELECT coalesce(r.counted_seq, 0) AS seq, h.seq AS tip,
           uuid7_floor((extract(epoch FROM coalesce(r.counted_at, 'epoch') - interval '1 day') * 1000)::bigint) AS since
    FROM account_heads h LEFT JOIN account_records r ON r.account_id = h.account_id WHERE h.account_id = $1
), used AS (
    SELECT day, messages AS accepted, 0 AS delivered, 0 AS bounced, 0 AS complained, 0 AS failed
    FROM accepted_days WHERE account_id = $1 AND day >= $2 AND day < $3
    UNION ALL
    SELECT (e.occurred_at AT TIME ZONE 'UTC')::date, 1, 0, 0, 0, 0 FROM events e
    WHERE e.account_id = $1 AND e.seq > (SELECT seq FROM record) AND e.seq <= (SELECT tip FROM record)
      AND e.id >= (SELECT since FROM record) AND e.type = 'accepted'
      AND e.occurred_at >= $2::date::timestamp AT TIME ZONE 'UTC'
      AND e.occurred_at < $3::date::timestamp AT TIME ZONE 'UTC'
    UNION ALL
    SELECT day, 0, delivered, bounced, complained, failed
    FROM account_days WHERE account_id = $1 AND day >= $2 AND day < $3
)
SELECT day, sum(accepted)::bigint AS accepted, sum(delivered)::bigint AS delivered, sum(bounced)::bigint AS bounced,
       sum(complained)::bigint AS complained, sum(failed)::bigint AS failed
FROM used GROUP BY day;
