-- fragment: counted_anew
-- The new counts of a quarter hour replace those of before.
SET accepted = excluded.accepted, queued = excluded.queued, sending = excluded.sending,
    delivered = excluded.delivered, bounced = excluded.bounced, complained = excluded.complained,
    failed = excluded.failed, rejected = excluded.rejected, scheduled = excluded.scheduled,
    canceled = excluded.canceled

-- name: open_records
-- Insert a record for every account that has a log and no record.
INSERT INTO account_records (account_id)
SELECT h.account_id FROM account_heads h
WHERE h.seq > 0 AND NOT EXISTS (SELECT 1 FROM account_records r WHERE r.account_id = h.account_id)
ON CONFLICT DO NOTHING;

-- name: take_due
-- Lock accounts whose counts are behind their log, those with the most events first, at most $4: counted last before $1,
-- or before $3 if at least $2 events are missing. Skips accounts that another process has locked.
SELECT r.account_id, r.counted_seq AS after, h.seq AS tip
FROM account_records r JOIN account_heads h ON h.account_id = r.account_id
WHERE h.seq > r.counted_seq AND (r.counted_at < $1 OR (h.seq - r.counted_seq >= $2 AND r.counted_at < $3))
ORDER BY h.seq - r.counted_seq DESC, r.account_id
LIMIT $4
FOR NO KEY UPDATE OF r SKIP LOCKED;

-- name: take_one
-- Lock the record of account $1; return how far it is behind the log.
SELECT r.account_id, r.counted_seq AS after, h.seq AS tip
FROM account_records r JOIN account_heads h ON h.account_id = r.account_id
WHERE r.account_id = $1 FOR NO KEY UPDATE OF r;

-- name: count_log
-- Count the events of accounts $1 (locked) after seq $2 up to seq $3; $4 is true if that is the end of the log. Adds
-- accepted messages to their day, and recounts each quarter hour that an event concerns from the current snapshot.
WITH due AS (
    SELECT n.account_id, n.after, n.upto, n.whole, r.first_quarter,
           uuid7_floor((extract(epoch FROM r.counted_at - interval '1 day') * 1000)::bigint) AS since
    FROM unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::boolean[]) AS n (account_id, after, upto, whole)
    JOIN account_records r ON r.account_id = n.account_id
), seen AS MATERIALIZED (
    SELECT due.account_id, due.first_quarter, uuid7_quarter(e.message_id) AS quarter,
           CASE e.type WHEN 'accepted' THEN (e.occurred_at AT TIME ZONE 'UTC')::date END AS accepted_on, count(*) AS events
    FROM due CROSS JOIN LATERAL (
        SELECT type, message_id, occurred_at FROM events
        WHERE account_id = due.account_id AND seq > due.after AND seq <= due.upto AND id >= due.since
        LIMIT due.upto - due.after
    ) e
    GROUP BY 1, 2, 3, 4
), touched AS MATERIALIZED (
    SELECT DISTINCT account_id, quarter FROM seen WHERE quarter >= first_quarter
), quarter AS (
    INSERT INTO message_quarters AS q (account_id, quarter, from_domain, stream, accepted, queued, sending, delivered,
                                       bounced, complained, failed, rejected, scheduled, canceled)
    SELECT t.account_id, t.quarter, c.*
    FROM touched t CROSS JOIN LATERAL count_messages_by_stream(t.account_id, t.quarter) c
    ON CONFLICT (account_id, quarter, from_domain, stream) DO UPDATE :counted_anew
), without_stream AS (
    DELETE FROM message_quarters q USING touched t
    WHERE q.account_id = t.account_id AND q.quarter = t.quarter AND q.stream = ''
), tag_quarter AS (
    INSERT INTO message_tag_quarters AS q (account_id, quarter, tag, from_domain, stream, accepted, queued, sending,
                                           delivered, bounced, complained, failed, rejected, scheduled, canceled)
    SELECT t.account_id, t.quarter, c.*
    FROM touched t CROSS JOIN LATERAL count_messages_by_tag(t.account_id, t.quarter, NULL) c
    ON CONFLICT (account_id, tag, quarter, from_domain, stream) DO UPDATE :counted_anew
), day AS (
    INSERT INTO accepted_days AS d (account_id, day, messages)
    SELECT account_id, accepted_on, sum(events) FROM seen WHERE accepted_on IS NOT NULL GROUP BY 1, 2
    ON CONFLICT (account_id, day) DO UPDATE SET messages = d.messages + excluded.messages
)
UPDATE account_records r
SET counted_seq = due.upto, counted_at = CASE WHEN due.whole THEN now() ELSE r.counted_at END
FROM due WHERE r.account_id = due.account_id;
