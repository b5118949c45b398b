-- name: take_watch
-- Lock an account with recent broadcasts, but for the accounts $1, whose log is not counted to its end; skips those that
-- another process has locked.
SELECT w.account_id, w.counted_seq AS after, h.seq AS tip, w.counted_at
FROM broadcast_watches w JOIN account_heads h ON h.account_id = w.account_id
WHERE h.seq > w.counted_seq AND w.account_id <> ALL ($1::uuid[])
ORDER BY w.counted_at, w.account_id LIMIT 1 FOR NO KEY UPDATE OF w SKIP LOCKED;

-- name: count_outcomes
-- Count the outcomes in the log of account $1 after seq $2 up to seq $3, none with an id below $4: the last one of each
-- message replaces the one that was counted before. Returns the broadcasts with changed counts.
WITH last AS MATERIALIZED (
    SELECT DISTINCT ON (message_id) message_id, CASE type WHEN 'suppressed' THEN 'rejected' ELSE type END AS outcome
    FROM events
    WHERE account_id = $1 AND seq > $2 AND seq <= $3 AND id >= $4 AND message_id IS NOT NULL
      AND type IN ('delivered', 'bounced', 'complained', 'failed', 'rejected', 'suppressed')
    ORDER BY message_id, seq DESC
), changed AS (
    SELECT r.broadcast_id, r.contact_id, r.outcome AS before, last.outcome AS after
    FROM last JOIN broadcast_recipients r ON r.message_id = last.message_id
    WHERE r.outcome IS DISTINCT FROM last.outcome
), marked AS (
    UPDATE broadcast_recipients r SET outcome = changed.after FROM changed
    WHERE r.broadcast_id = changed.broadcast_id AND r.contact_id = changed.contact_id
), sums AS (
    SELECT broadcast_id,
           count(*) FILTER (WHERE after = 'delivered') - count(*) FILTER (WHERE before = 'delivered') AS delivered,
           count(*) FILTER (WHERE after = 'bounced') - count(*) FILTER (WHERE before = 'bounced') AS bounced,
           count(*) FILTER (WHERE after = 'complained') - count(*) FILTER (WHERE before = 'complained') AS complained,
           count(*) FILTER (WHERE after = 'failed') - count(*) FILTER (WHERE before = 'failed') AS failed,
           count(*) FILTER (WHERE after = 'rejected') - count(*) FILTER (WHERE before = 'rejected') AS rejected
    FROM changed GROUP BY broadcast_id
)
UPDATE broadcast_outcomes o
SET delivered = o.delivered + sums.delivered, bounced = o.bounced + sums.bounced,
    complained = o.complained + sums.complained, failed = o.failed + sums.failed, rejected = o.rejected + sums.rejected
FROM sums WHERE o.broadcast_id = sums.broadcast_id
RETURNING o.broadcast_id;

-- name: opt_outs
-- Return the events of people who left or came back through a link in the log of account $1 after seq $2 up to seq $3,
-- none with an id below $4.
SELECT type, readable_payload(type, payload) AS payload FROM events
WHERE account_id = $1 AND seq > $2 AND seq <= $3 AND id >= $4
  AND type IN ('contact.unsubscribed', 'contact.resubscribed');

-- name: add_opt_outs
-- Add to the people who opted out of broadcasts $2 of account $1 the numbers $3.
UPDATE broadcast_outcomes o SET unsubscribed = greatest(0, o.unsubscribed + n.people)
FROM unnest($2::uuid[], $3::int[]) AS n (broadcast_id, people) JOIN broadcasts b ON b.id = n.broadcast_id
WHERE o.broadcast_id = b.id AND b.account_id = $1;

-- name: advance_watch
-- Record that the log of account $1 is counted up to seq $2.
UPDATE broadcast_watches SET counted_seq = $2, counted_at = now() WHERE account_id = $1;

-- name: end_watches
-- Forget the accounts whose watch is over, but for those with a broadcast that has started and not ended, or that ended
-- less than $1 ago: a broadcast may wait for a month, or take longer at its pace.
DELETE FROM broadcast_watches w
WHERE w.ends_at < now() AND NOT EXISTS (
    SELECT 1 FROM broadcasts b
    WHERE b.account_id = w.account_id AND b.started_at IS NOT NULL
      AND (b.finished_at IS NULL OR b.finished_at > now() - $1::interval));
