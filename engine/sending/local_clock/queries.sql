-- name: mail_is_due
-- Return whether a delivery is due or in hand, the fresh ones up to $1 before they fall due: cheaper than due_work.
SELECT EXISTS (
    SELECT FROM queue q WHERE q.held_by IS NULL AND (q.due_at <= (SELECT now())
        OR q.attempts = 0 AND q.waiting IS NULL AND q.due_at <= (SELECT now()) + $1::interval)) AS due;

-- name: due_work
-- Return the work that is due or in hand, and the service time to stop at for what falls due next, by kind. A retry of a
-- delivery or of a post may be late by the part $3 of its wait, which is in $1 (deliveries) or $2 (posts), so that many
-- share a stop; anything else by at most a second. Fresh deliveries are in hand up to $4 before they fall due. `calls` is
-- whom to call (`Calls` of engine.base.clock).
WITH t AS MATERIALIZED (
    SELECT now() AS at, interval '1 second' AS brief
), work (kind, due, next_at, calls) AS (
    SELECT 'deliveries', count(*) FILTER (WHERE q.due_at <= t.at OR q.attempts = 0 AND q.waiting IS NULL AND q.due_at <= t.at + $4::interval),
           min(q.due_at + CASE WHEN q.attempts = 0 THEN t.brief
                               ELSE make_interval(secs => $3::float8 * ($1::float8[])[least(q.attempts, cardinality($1))]) END)
               FILTER (WHERE q.due_at > t.at),
           0
    FROM queue q, t WHERE q.held_by IS NULL
    UNION ALL
    SELECT 'webhook posts', count(*) FILTER (WHERE w.due_at <= t.at OR w.leased_until > t.at),
           min(w.due_at + CASE WHEN w.attempts = 0 THEN t.brief
                               ELSE make_interval(secs => $3::float8 * ($2::float8[])[least(w.attempts, cardinality($2))]) END)
               FILTER (WHERE w.due_at > t.at AND w.leased_until IS NULL),
           0
    FROM webhook_queue w, t
    WHERE NOT EXISTS (
        SELECT FROM holds h WHERE h.kind = 'site' AND h.target = '*' AND NOT h.ended AND (h.until IS NULL OR h.until > t.at))
    UNION ALL
    SELECT 'scheduled messages', count(*) FILTER (WHERE s.look_at <= t.at), min(s.look_at + t.brief) FILTER (WHERE s.look_at > t.at), 1
    FROM schedules s, t
    UNION ALL
    SELECT 'forwards', count(*) FILTER (WHERE f.due_at <= t.at), min(f.due_at + t.brief) FILTER (WHERE f.due_at > t.at), 1
    FROM inbound_forwards f, t
    UNION ALL
    SELECT 'received reports', count(*) FILTER (WHERE r.due_at <= t.at), min(r.due_at + t.brief) FILTER (WHERE r.due_at > t.at), 1
    FROM report_mails r, t WHERE r.state = 'waiting'
    UNION ALL
    SELECT 'broadcasts', count(*) FILTER (WHERE b.due_at <= t.at OR b.worker IS NOT NULL),
           min(b.due_at) FILTER (WHERE b.due_at > t.at AND b.worker IS NULL), 1
    FROM broadcast_work b, t
    UNION ALL
    SELECT 'verifications', count(*) FILTER (WHERE v.due_at <= t.at), min(v.due_at + t.brief) FILTER (WHERE v.due_at > t.at), 1
    FROM verifications v, t WHERE NOT v.announced
    UNION ALL
    SELECT 'mails of Waybill itself', count(*) FILTER (WHERE m.due_at <= t.at), min(m.due_at + t.brief) FILTER (WHERE m.due_at > t.at), 1
    FROM system_mail m, t WHERE EXISTS (SELECT FROM platform)
    UNION ALL
    SELECT 'holds', 0, min(h.until) FILTER (WHERE h.until > t.at), 2 FROM holds h, t WHERE NOT h.ended
    UNION ALL
    SELECT 'domain checks', 0, min(d.check_at + t.brief) FILTER (WHERE d.check_at > t.at), 2
    FROM domains d, t WHERE d.deleted_at IS NULL AND d.status <> 'verified'
    UNION ALL
    SELECT 'subscriptions', 0, min(s.look_at) FILTER (WHERE s.look_at > t.at), 2 FROM subscriptions s, t
    UNION ALL
    SELECT 'deletions', 0, min(d.due_at) FILTER (WHERE d.due_at > t.at), 2 FROM deletions d, t
)
SELECT kind, due, next_at, calls FROM work WHERE due > 0 OR next_at IS NOT NULL;
