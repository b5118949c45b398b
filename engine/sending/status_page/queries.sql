-- name: recent_attempts
-- Attempts for the newest $2 messages since the time of id $1: their number, and the share that ended with one of the
-- classes $3, as the mean of the accounts' shares, so that one account with dead domains does not speak for all.
WITH newest AS (SELECT id FROM messages WHERE id >= $1 ORDER BY id DESC LIMIT $2),
     by_account AS (
         SELECT e.account_id, count(*) AS attempts,
                avg((substring(e.payload FROM '"class":"([a-z_]+)"') = ANY ($3::text[]))::int) AS share
         FROM newest n JOIN events e ON e.message_id = n.id AND e.id >= $1
         WHERE e.type IN ('delivered', 'deferred', 'bounced', 'failed') GROUP BY e.account_id)
SELECT coalesce(sum(attempts), 0)::bigint AS attempts, coalesce(avg(share), 0)::float8 AS share FROM by_account;

-- name: late_webhooks
-- The seconds by which the oldest due post is late at $1, without endpoints that got a post within $2 seconds before: those
-- are slow themselves. One index step per endpoint with posts; 0 while an operator holds all deliveries.
WITH RECURSIVE first AS (
    (SELECT webhook_id, due_at FROM webhook_queue ORDER BY webhook_id, due_at LIMIT 1)
    UNION ALL
    SELECT n.webhook_id, n.due_at FROM first CROSS JOIN LATERAL (
        SELECT q.webhook_id, q.due_at FROM webhook_queue q WHERE q.webhook_id > first.webhook_id
        ORDER BY q.webhook_id, q.due_at LIMIT 1) n
)
SELECT coalesce(max(extract(epoch FROM $1::timestamptz - f.due_at)), 0)::float8 AS late_s FROM first f
WHERE f.due_at <= $1 AND NOT EXISTS (
    SELECT FROM webhook_hours h WHERE h.webhook_id = f.webhook_id AND h.hour > $1 - interval '2 hours'
    AND h.last_at > $1 - make_interval(secs => $2))
AND NOT EXISTS (
    SELECT FROM holds h WHERE h.kind = 'site' AND h.target = '*' AND NOT h.ended AND (h.until IS NULL OR h.until > $1));

-- name: write_quarters
-- Record the states $3 of components $1 in the quarter hours $2; a worse state that is recorded already stays.
INSERT INTO status_quarters AS s (component, quarter, state)
SELECT * FROM unnest($1::text[], $2::timestamptz[], $3::smallint[])
ON CONFLICT (quarter, component) DO UPDATE SET state = excluded.state WHERE excluded.state > s.state;

-- name: forget_quarters
-- Delete quarter hours that began before $1.
DELETE FROM status_quarters WHERE quarter < $1;

-- name: status_days
-- Count the quarter hours since $1 by component and day (UTC): measured, degraded and down.
SELECT component, (quarter AT TIME ZONE 'UTC')::date AS day, count(*) AS measured,
       count(*) FILTER (WHERE state = 1) AS degraded, count(*) FILTER (WHERE state = 2) AS down
FROM status_quarters WHERE quarter >= $1 GROUP BY 1, 2 ORDER BY 1, 2;

-- name: open_incident
-- Open incident $1 with title $2 at $3; returns no row if an open one has this title.
INSERT INTO status_incidents (id, title, opened_at) VALUES ($1, $2, $3)
ON CONFLICT (title) WHERE closed_at IS NULL DO NOTHING RETURNING id;

-- name: find_open_incident
-- Lock the open incident with title $1; return it with the number of its updates.
SELECT i.id, (SELECT count(*) FROM status_updates u WHERE u.incident_id = i.id) AS updates
FROM status_incidents i WHERE i.title = $1 AND i.closed_at IS NULL FOR UPDATE OF i;

-- name: add_update
-- Add update $1 to incident $2, written at $3, with message $4.
INSERT INTO status_updates (id, incident_id, written_at, message) VALUES ($1, $2, $3, $4);

-- name: close_incident
-- Close incident $1 at $2.
UPDATE status_incidents SET closed_at = $2 WHERE id = $1;

-- name: list_incidents
-- Return the updates of the $2 newest incidents that are open or were closed after $1: open ones first, then by time, the
-- newest update first.
SELECT i.id AS incident_id, i.title, i.opened_at, i.closed_at, u.written_at, u.message
FROM (SELECT * FROM status_incidents WHERE closed_at IS NULL OR closed_at > $1
      ORDER BY closed_at IS NOT NULL, opened_at DESC, id LIMIT $2) i
JOIN status_updates u ON u.incident_id = i.id
ORDER BY i.closed_at IS NOT NULL, i.opened_at DESC, i.id, u.written_at DESC, u.id DESC;

-- name: forget_incidents
-- Delete incidents that were closed before $1, with their updates.
DELETE FROM status_incidents WHERE closed_at < $1;
