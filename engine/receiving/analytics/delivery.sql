-- name: open_counts
-- Insert a record for every account that has a log and no record.
INSERT INTO delivery_counts (account_id)
SELECT h.account_id FROM account_heads h
WHERE h.seq > 0 AND NOT EXISTS (SELECT 1 FROM delivery_counts c WHERE c.account_id = h.account_id)
ON CONFLICT DO NOTHING;

-- name: take_due
-- Lock the account whose counts are behind its log by the most events: counted last before $1, or before $3 if at least
-- $2 events are missing. Skips accounts that another process has locked.
SELECT c.account_id, c.counted_seq AS after, h.seq AS tip, c.counted_at
FROM delivery_counts c JOIN account_heads h ON h.account_id = c.account_id
WHERE h.seq > c.counted_seq AND (c.counted_at < $1 OR (h.seq - c.counted_seq >= $2 AND c.counted_at < $3))
ORDER BY h.seq - c.counted_seq DESC, c.account_id LIMIT 1 FOR NO KEY UPDATE OF c SKIP LOCKED;

-- name: open_one
-- Insert the record of account $1 if it is missing.
INSERT INTO delivery_counts (account_id) SELECT account_id FROM account_heads WHERE account_id = $1
ON CONFLICT DO NOTHING;

-- name: take_one
-- Lock the record of account $1; return how far it is behind the log.
SELECT c.account_id, c.counted_seq AS after, h.seq AS tip, c.counted_at
FROM delivery_counts c JOIN account_heads h ON h.account_id = c.account_id
WHERE c.account_id = $1 FOR NO KEY UPDATE OF c;

-- name: behind
-- Return how many events of account $1 are not counted yet.
SELECT h.seq - coalesce(c.counted_seq, 0) AS events
FROM account_heads h LEFT JOIN delivery_counts c ON c.account_id = h.account_id WHERE h.account_id = $1;

-- name: events_after
-- Return the events about deliveries of account $1 after seq $2 up to seq $3, none with an id below $4. Payloads are left
-- out or cut where they are not needed whole; the recipient stands at their beginning.
SELECT seq, type, message_id, occurred_at,
       CASE type WHEN 'accepted' THEN '' WHEN 'bounced' THEN coalesce(payload, '') ELSE left(coalesce(payload, ''), 1000) END
           AS payload
FROM events
WHERE account_id = $1 AND seq > $2 AND seq <= $3 AND id >= $4 AND message_id IS NOT NULL
  AND type IN ('accepted', 'attempted', 'delivered', 'bounced', 'failed', 'complained')
ORDER BY seq;

-- name: messages_counted
-- Return sending domain, stream and tags of messages $1, whose ids lie between $2 and $3.
SELECT id, from_domain, stream, coalesce(ARRAY(SELECT jsonb_array_elements_text(tags)), '{}') AS tags
FROM messages WHERE id = ANY ($1::uuid[]) AND id BETWEEN $2 AND $3;

-- name: accepted_at
-- Return when messages $1 were accepted. Their events have ids from $2 on.
SELECT message_id, occurred_at FROM events
WHERE message_id = ANY ($1::uuid[]) AND id >= $2 AND type = 'accepted';

-- name: recipients_counted
-- Return the addresses of messages $1, whose ids lie between $2 and $3.
SELECT message_id, array_agg(address ORDER BY n) AS addresses FROM recipients
WHERE message_id = ANY ($1::uuid[]) AND message_id BETWEEN $2 AND $3 GROUP BY message_id;

-- name: history_of
-- Return the outcomes of messages $1 in order. Their events have ids from $2 on.
SELECT seq, type, message_id, occurred_at, coalesce(payload, '') AS payload FROM events
WHERE message_id = ANY ($1::uuid[]) AND id >= $2 AND type IN ('delivered', 'bounced', 'complained') ORDER BY seq;

-- name: times_of
-- Return the stored histograms of groups of an account. Groups without one are left out.
SELECT g.tag, g.day, g.domain, g.stream, g.from_domain, g.times
FROM :wanted JOIN delivery_groups g ON g.account_id = :account::uuid AND g.tag = wanted.tag AND g.day = wanted.day
    AND g.domain = wanted.domain AND g.stream = wanted.stream AND g.from_domain = wanted.from_domain
WHERE g.times <> '';

-- name: add_groups
-- Add to the counts of groups, and replace their histograms where one is given. The account's record is locked.
INSERT INTO delivery_groups AS g (account_id, :counted.names)
SELECT :account::uuid, counted.* FROM :counted ORDER BY tag, day, domain, stream, from_domain
ON CONFLICT (account_id, tag, day, domain, stream, from_domain) DO UPDATE
SET deliveries = g.deliveries + excluded.deliveries, delivered = g.delivered + excluded.delivered,
    bounced = g.bounced + excluded.bounced, failed = g.failed + excluded.failed,
    complained = g.complained + excluded.complained,
    times = CASE WHEN excluded.times = '' THEN g.times ELSE excluded.times END;

-- name: week_times_of
-- Return the stored histograms of weeks, as `times_of` does those of days.
SELECT g.tag, g.day, g.domain, g.stream, g.from_domain, g.times
FROM :wanted JOIN delivery_weeks g ON g.account_id = :account::uuid AND g.tag = wanted.tag AND g.day = wanted.day
    AND g.domain = wanted.domain AND g.stream = wanted.stream AND g.from_domain = wanted.from_domain
WHERE g.times <> '';

-- name: add_weeks
-- Add to the counts of weeks, as `add_groups` does to those of days.
INSERT INTO delivery_weeks AS g (account_id, :counted.names)
SELECT :account::uuid, counted.* FROM :counted ORDER BY tag, day, domain, stream, from_domain
ON CONFLICT (account_id, tag, day, domain, stream, from_domain) DO UPDATE
SET deliveries = g.deliveries + excluded.deliveries, delivered = g.delivered + excluded.delivered,
    bounced = g.bounced + excluded.bounced, failed = g.failed + excluded.failed,
    complained = g.complained + excluded.complained,
    times = CASE WHEN excluded.times = '' THEN g.times ELSE excluded.times END;

-- name: provider_times_of
-- Return the stored histograms of providers, as `times_of` does those of domains.
SELECT '' AS tag, g.day, g.provider AS domain, g.stream, g.from_domain, g.times
FROM :wanted JOIN delivery_providers g ON g.account_id = :account::uuid AND g.day = wanted.day
    AND g.provider = wanted.domain AND g.stream = wanted.stream AND g.from_domain = wanted.from_domain
WHERE g.times <> '';

-- name: add_providers
-- Add to the counts by provider, as `add_groups` does to those of domains.
INSERT INTO delivery_providers AS g (account_id, day, provider, stream, from_domain, delivered, bounced, failed,
                                     complained, times)
SELECT :account::uuid, day, domain, stream, from_domain, delivered, bounced, failed, complained, times
FROM :counted ORDER BY day, domain, stream, from_domain
ON CONFLICT (account_id, day, provider, stream, from_domain) DO UPDATE
SET delivered = g.delivered + excluded.delivered, bounced = g.bounced + excluded.bounced,
    failed = g.failed + excluded.failed, complained = g.complained + excluded.complained,
    times = CASE WHEN excluded.times = '' THEN g.times ELSE excluded.times END;

-- name: advance
-- Record that account $1 is counted up to seq $2, at $3.
UPDATE delivery_counts SET counted_seq = $2, counted_at = $3 WHERE account_id = $1;

-- name: groups_by_domain
-- Sum the deliveries of account $1 from day $2 to day $5 by recipients' domain, those with the most first. The days from
-- $3 to the one before $4 are whole weeks, and are read as such. Of tag $6 ('' for all), streams $7 and sending domains
-- $8 (null: all); $9 rows after the first $10.
SELECT domain AS name, sum(deliveries)::bigint AS deliveries, sum(delivered)::bigint AS delivered,
       sum(bounced)::bigint AS bounced, sum(failed)::bigint AS failed, sum(complained)::bigint AS complained
FROM (
    SELECT domain, deliveries, delivered, bounced, failed, complained FROM delivery_groups
    WHERE account_id = $1 AND day BETWEEN $2 AND $3::date - 1 AND tag = $6 AND domain <> ''
      AND ($7::text[] IS NULL OR stream = ANY ($7)) AND ($8::text[] IS NULL OR from_domain = ANY ($8))
    UNION ALL
    SELECT domain, deliveries, delivered, bounced, failed, complained FROM delivery_weeks
    WHERE account_id = $1 AND day BETWEEN $3 AND $4::date - 1 AND tag = $6 AND domain <> ''
      AND ($7::text[] IS NULL OR stream = ANY ($7)) AND ($8::text[] IS NULL OR from_domain = ANY ($8))
    UNION ALL
    SELECT domain, deliveries, delivered, bounced, failed, complained FROM delivery_groups
    WHERE account_id = $1 AND day BETWEEN $4 AND $5 AND tag = $6 AND domain <> ''
      AND ($7::text[] IS NULL OR stream = ANY ($7)) AND ($8::text[] IS NULL OR from_domain = ANY ($8))
) AS part
GROUP BY domain ORDER BY sum(deliveries) DESC, domain COLLATE "C" LIMIT $9 OFFSET $10;

-- name: groups_by_tag
-- Sum the deliveries by tag, with the arguments of `groups_by_domain`.
SELECT tag AS name, sum(deliveries)::bigint AS deliveries, sum(delivered)::bigint AS delivered,
       sum(bounced)::bigint AS bounced, sum(failed)::bigint AS failed, sum(complained)::bigint AS complained
FROM (
    SELECT tag, deliveries, delivered, bounced, failed, complained FROM delivery_groups
    WHERE account_id = $1 AND day BETWEEN $2 AND $3::date - 1 AND domain = '' AND ($6 = '' OR tag = $6)
      AND ($7::text[] IS NULL OR stream = ANY ($7)) AND ($8::text[] IS NULL OR from_domain = ANY ($8))
    UNION ALL
    SELECT tag, deliveries, delivered, bounced, failed, complained FROM delivery_weeks
    WHERE account_id = $1 AND day BETWEEN $3 AND $4::date - 1 AND domain = '' AND ($6 = '' OR tag = $6)
      AND ($7::text[] IS NULL OR stream = ANY ($7)) AND ($8::text[] IS NULL OR from_domain = ANY ($8))
    UNION ALL
    SELECT tag, deliveries, delivered, bounced, failed, complained FROM delivery_groups
    WHERE account_id = $1 AND day BETWEEN $4 AND $5 AND domain = '' AND ($6 = '' OR tag = $6)
      AND ($7::text[] IS NULL OR stream = ANY ($7)) AND ($8::text[] IS NULL OR from_domain = ANY ($8))
) AS part
GROUP BY tag ORDER BY sum(deliveries) DESC, tag COLLATE "C" LIMIT $9 OFFSET $10;

-- name: times_by_domain
-- Return the histograms of the domains $9, with the conditions of `groups_by_domain`, one behind another.
SELECT domain AS name, string_agg(times, '') AS times
FROM (
    SELECT domain, times FROM delivery_groups
    WHERE account_id = $1 AND day BETWEEN $2 AND $3::date - 1 AND tag = $6 AND domain = ANY ($9::text[])
      AND times <> ''
      AND ($7::text[] IS NULL OR stream = ANY ($7)) AND ($8::text[] IS NULL OR from_domain = ANY ($8))
    UNION ALL
    SELECT domain, times FROM delivery_weeks
    WHERE account_id = $1 AND day BETWEEN $3 AND $4::date - 1 AND tag = $6 AND domain = ANY ($9::text[])
      AND times <> ''
      AND ($7::text[] IS NULL OR stream = ANY ($7)) AND ($8::text[] IS NULL OR from_domain = ANY ($8))
    UNION ALL
    SELECT domain, times FROM delivery_groups
    WHERE account_id = $1 AND day BETWEEN $4 AND $5 AND tag = $6 AND domain = ANY ($9::text[])
      AND times <> ''
      AND ($7::text[] IS NULL OR stream = ANY ($7)) AND ($8::text[] IS NULL OR from_domain = ANY ($8))
) AS part
GROUP BY domain;

-- name: times_by_tag
-- Return the histograms of the tags $9, with the conditions of `groups_by_tag`, one behind another.
SELECT tag AS name, string_agg(times, '') AS times
FROM (
    SELECT tag, times FROM delivery_groups
    WHERE account_id = $1 AND day BETWEEN $2 AND $3::date - 1 AND domain = '' AND ($6 = '' OR tag = $6)
      AND tag = ANY ($9::text[]) AND times <> ''
      AND ($7::text[] IS NULL OR stream = ANY ($7)) AND ($8::text[] IS NULL OR from_domain = ANY ($8))
    UNION ALL
    SELECT tag, times FROM delivery_weeks
    WHERE account_id = $1 AND day BETWEEN $3 AND $4::date - 1 AND domain = '' AND ($6 = '' OR tag = $6)
      AND tag = ANY ($9::text[]) AND times <> ''
      AND ($7::text[] IS NULL OR stream = ANY ($7)) AND ($8::text[] IS NULL OR from_domain = ANY ($8))
    UNION ALL
    SELECT tag, times FROM delivery_groups
    WHERE account_id = $1 AND day BETWEEN $4 AND $5 AND domain = '' AND ($6 = '' OR tag = $6)
      AND tag = ANY ($9::text[]) AND times <> ''
      AND ($7::text[] IS NULL OR stream = ANY ($7)) AND ($8::text[] IS NULL OR from_domain = ANY ($8))
) AS part
GROUP BY tag;

-- name: forget_groups
-- Delete at most $2 groups of days before $1; return how many there were. An account that has agreed on more days of
-- analytics than $3 keeps its groups for as many days longer.
WITH gone AS (
    DELETE FROM delivery_groups WHERE ctid = ANY (ARRAY(
        SELECT g.ctid FROM delivery_groups g JOIN accounts a ON a.id = g.account_id
        WHERE g.day < $1 AND g.day < $1::date - greatest(0, coalesce((a.agreed_caps->>'analytics_days')::int, 0) - $3::int)
        LIMIT $2))
    RETURNING 1
)
SELECT count(*) AS groups FROM gone;

-- name: forget_weeks
-- Delete at most $2 sums of weeks that ended before $1, as forget_groups; return how many there were.
WITH gone AS (
    DELETE FROM delivery_weeks WHERE ctid = ANY (ARRAY(
        SELECT w.ctid FROM delivery_weeks w JOIN accounts a ON a.id = w.account_id
        WHERE w.day < $1::date - 6
          AND w.day < $1::date - 6 - greatest(0, coalesce((a.agreed_caps->>'analytics_days')::int, 0) - $3::int)
        LIMIT $2))
    RETURNING 1
)
SELECT count(*) AS groups FROM gone;

-- name: forget_providers
-- Delete at most $2 counts by provider of days before $1, as forget_groups; return how many there were.
WITH gone AS (
    DELETE FROM delivery_providers WHERE ctid = ANY (ARRAY(
        SELECT p.ctid FROM delivery_providers p JOIN accounts a ON a.id = p.account_id
        WHERE p.day < $1 AND p.day < $1::date - greatest(0, coalesce((a.agreed_caps->>'analytics_days')::int, 0) - $3::int)
        LIMIT $2))
    RETURNING 1
)
SELECT count(*) AS groups FROM gone;
