-- fragment: endpoint_columns
-- The columns of an endpoint that are shown.
id, url, event_types, status, description, domains, streams, header_names, include_metadata, signatures,
honor_retry_after, created_at

-- fragment: posted_metadata
-- The tags and metadata of the message of event `e`, if endpoint `w` includes them; null for sealed messages. The limit
-- keeps this one index step per post, and none for other endpoints.
LEFT JOIN LATERAL (
    SELECT coalesce(o.tags, '[]')::text AS tags, coalesce(o.metadata, '{}')::text AS metadata FROM messages o
    WHERE w.include_metadata AND o.id = e.message_id AND o.account_id = w.account_id AND NOT is_sealed_source(o.source)
    LIMIT 1) m ON true

-- name: insert_webhook
-- Insert endpoint $1 of account $2: URL $3, event types $4, sealed secret $5, description $6, domains $7, streams $8, names
-- $9 and sealed values $10 of headers, whether posts include tags and metadata $11.
INSERT INTO webhooks (id, account_id, url, event_types, sealed_secret, description, domains, streams, header_names,
                      sealed_headers, include_metadata, created_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, clock_timestamp());

-- name: count_webhooks
-- Count the endpoints of account $1.
SELECT count(*) AS live FROM webhooks WHERE account_id = $1 AND status <> 'deleted';

-- name: list_webhooks
-- List endpoints of account $1 with ids below $2 (null: from the newest), newest first, at most $3. With domains $4 and
-- streams $5 (null: all), only those that get events of no others.
SELECT :endpoint_columns FROM webhooks
WHERE account_id = $1 AND status <> 'deleted' AND ($2::uuid IS NULL OR id < $2)
  AND ($4::text[] IS NULL OR (domains <> '{}' AND domains <@ $4))
  AND ($5::text[] IS NULL OR (streams <> '{}' AND streams <@ $5))
ORDER BY id DESC LIMIT $3;

-- name: find_webhook_with_url
-- Read the oldest endpoint of account $1 with URL $2; with domains $3 and streams $4 (null: all), as in list_webhooks.
SELECT :endpoint_columns FROM webhooks
WHERE account_id = $1 AND url = $2 AND status <> 'deleted'
  AND ($3::text[] IS NULL OR (domains <> '{}' AND domains <@ $3))
  AND ($4::text[] IS NULL OR (streams <> '{}' AND streams <@ $4))
ORDER BY id LIMIT 1;

-- name: read_webhook
-- Read endpoint $2 of account $1.
SELECT :endpoint_columns FROM webhooks WHERE account_id = $1 AND id = $2 AND status <> 'deleted';

-- name: read_health
-- Read how endpoints $2 of account $1 respond, counting posts of the hours after $3.
SELECT w.id, w.status, w.failures, w.failing_since, day.posts, day.delivered, last.last_at, last.last_status,
       last.last_error, last.last_milliseconds,
       (SELECT q.due_at FROM webhook_queue q WHERE q.webhook_id = w.id ORDER BY q.due_at LIMIT 1) AS next_attempt_at
FROM webhooks w CROSS JOIN LATERAL (
    SELECT coalesce(sum(h.posts), 0)::bigint AS posts, coalesce(sum(h.delivered), 0)::bigint AS delivered
    FROM webhook_hours h WHERE h.webhook_id = w.id AND h.hour > $3) day
LEFT JOIN LATERAL (
    SELECT h.last_at, h.last_status, h.last_error, h.last_milliseconds FROM webhook_hours h
    WHERE h.webhook_id = w.id ORDER BY h.hour DESC LIMIT 1) last ON true
WHERE w.account_id = $1 AND w.id = ANY ($2::uuid[]);

-- name: change_webhook
-- Change endpoint $2 of account $1: URL $3, event types $4, status $5, description $6, domains $7, streams $8, names $9 and
-- sealed values $10 of headers, whether posts include tags and metadata $11; null keeps a value, for the sealed values null
-- names. Another URL or status forgets its failures.
UPDATE webhooks SET url = coalesce($3, url), event_types = coalesce($4, event_types), status = coalesce($5, status),
    description = coalesce($6, description), domains = coalesce($7, domains), streams = coalesce($8, streams),
    header_names = coalesce($9, header_names),
    sealed_headers = CASE WHEN $9::text[] IS NULL THEN sealed_headers ELSE $10 END,
    include_metadata = coalesce($11, include_metadata),
    failures = CASE WHEN $3 <> url OR $5 <> status THEN 0 ELSE failures END,
    failing_since = CASE WHEN $3 <> url OR $5 <> status THEN NULL ELSE failing_since END
WHERE account_id = $1 AND id = $2 AND status <> 'deleted'
RETURNING :endpoint_columns;

-- name: lock_headers
-- Read the headers of endpoint $2 of account $1, and lock it for a change.
SELECT header_names, sealed_headers FROM webhooks WHERE account_id = $1 AND id = $2 AND status <> 'deleted'
FOR NO KEY UPDATE;

-- name: change_signatures_and_retries
-- Set signatures $3 of endpoint $2 of account $1, and whether Retry-After is honored $4; null keeps a value.
UPDATE webhooks SET signatures = coalesce($3, signatures), honor_retry_after = coalesce($4, honor_retry_after)
WHERE account_id = $1 AND id = $2 AND status <> 'deleted';

-- name: lock_secret
-- Read the sealed secret of endpoint $2 of account $1, and lock it for a change.
SELECT sealed_secret FROM webhooks WHERE account_id = $1 AND id = $2 AND status <> 'deleted' FOR NO KEY UPDATE;

-- name: rotate_secret
-- Set the secret of endpoint $2 of account $1 to $3; the previous one signs as well until $4.
UPDATE webhooks SET sealed_secret = $3, sealed_previous = sealed_secret, previous_until = $4
WHERE account_id = $1 AND id = $2 AND status <> 'deleted';

-- name: delete_webhook
-- Mark endpoint $2 of account $1 as deleted; queued posts are still made.
UPDATE webhooks SET status = 'deleted', deleted_at = now() WHERE account_id = $1 AND id = $2 AND status <> 'deleted'
RETURNING id;

-- name: forget_deleted
-- Delete the rows of endpoints that were deleted before $1 and have no queued posts.
DELETE FROM webhooks w WHERE w.status = 'deleted' AND w.deleted_at < $1
AND NOT EXISTS (SELECT FROM webhook_queue q WHERE q.webhook_id = w.id);

-- name: forget_hours
-- Delete the counts of hours before $1.
DELETE FROM webhook_hours WHERE hour < $1;

-- name: queue_one
-- Queue event $2 (seq $3 of account $4) for endpoint $1 only.
INSERT INTO webhook_queue (webhook_id, event_id, account_id, seq, due_at) VALUES ($1, $2, $4, $3, now());

-- name: replay
-- Queue event $2 again for endpoint $3 of account $1, or if $3 is null for its active endpoints that received it. The
-- retry schedule restarts unless one is running; a post that waits for its retry becomes due now.
WITH had AS (
    SELECT w.id, w.status, h.attempts, h.seq FROM webhooks w CROSS JOIN LATERAL (
        SELECT max(k.attempt) AS attempts, max(k.seq) AS seq FROM (
            SELECT a.attempt, a.seq FROM webhook_attempts a WHERE a.webhook_id = w.id AND a.event_id = $2
            UNION ALL
            SELECT q.attempts, q.seq FROM webhook_queue q WHERE q.webhook_id = w.id AND q.event_id = $2
        ) k
    ) h
    WHERE w.account_id = $1
), place AS (
    SELECT max(seq) AS seq FROM had
)
INSERT INTO webhook_queue AS q (webhook_id, event_id, account_id, seq, due_at, attempts, ladder_from)
SELECT had.id, $2, $1, place.seq, now(), coalesce(had.attempts, 0), coalesce(had.attempts, 0)
FROM had, place
WHERE place.seq IS NOT NULL
  AND CASE WHEN $3::uuid IS NULL THEN had.status = 'active' AND had.seq IS NOT NULL
           ELSE had.id = $3 AND had.status <> 'deleted' END
ON CONFLICT (webhook_id, event_id) DO UPDATE
SET due_at = CASE WHEN q.leased_until > now() THEN q.due_at ELSE least(q.due_at, now()) END
RETURNING webhook_id;

-- name: delivery_candidates
-- List deliveries of endpoint $1 of account $2 with event ids below $3 and not below $4, newest first, at most $5, with
-- their state and event type.
WITH known AS (
    (SELECT DISTINCT ON (event_id) event_id, seq FROM webhook_attempts
     WHERE webhook_id = $1 AND event_id < $3 AND event_id >= $4 ORDER BY event_id DESC LIMIT $5)
    UNION
    (SELECT event_id, seq FROM webhook_queue WHERE webhook_id = $1 AND event_id < $3 AND event_id >= $4
     ORDER BY event_id DESC LIMIT $5)
), page AS (
    SELECT event_id, seq FROM known ORDER BY event_id DESC LIMIT $5
)
SELECT page.event_id, page.seq, CASE
    WHEN EXISTS (SELECT FROM webhook_queue q WHERE q.webhook_id = $1 AND q.event_id = page.event_id) THEN 'pending'
    WHEN (SELECT a.delivered FROM webhook_attempts a WHERE a.webhook_id = $1 AND a.event_id = page.event_id
          ORDER BY a.attempt DESC, a.id DESC LIMIT 1) THEN 'delivered'
    ELSE 'failed' END AS state,
    (SELECT o.type FROM events o WHERE o.account_id = $2 AND o.seq = page.seq AND o.id = page.event_id LIMIT 1) AS type
FROM page ORDER BY page.event_id DESC;

-- name: list_deliveries
-- List the deliveries of events $3 (seqs $4) to endpoint $1 of account $2, newest first, with subject and recipient of what
-- the event is about: of the message the first one, unless the event names another.
SELECT page.event_id, q.due_at, e.type, e.occurred_at, e.message_id, m.recipient, m.subject, (
    SELECT a.answer FROM webhook_attempts a WHERE a.webhook_id = $1 AND a.event_id = page.event_id
    ORDER BY a.attempt DESC, a.id DESC LIMIT 1) AS answer, ARRAY(
    SELECT ROW(a.attempt, a.started_at, a.milliseconds, a.delivered, a.status_code, a.error)
    FROM webhook_attempts a WHERE a.webhook_id = $1 AND a.event_id = page.event_id ORDER BY a.attempt, a.id) AS attempts
FROM unnest($3::uuid[], $4::bigint[]) AS page (event_id, seq)
LEFT JOIN webhook_queue q ON q.webhook_id = $1 AND q.event_id = page.event_id
LEFT JOIN LATERAL (
    SELECT o.type, o.occurred_at, o.message_id, o.payload FROM events o
    WHERE o.account_id = $2 AND o.seq = page.seq AND o.id = page.event_id LIMIT 1) e ON true
LEFT JOIN LATERAL (
    SELECT coalesce(d.about ->> 'subject', o.subject) AS subject, coalesce(d.about ->> 'recipient', o.recipient) AS recipient
    FROM (SELECT e.payload::jsonb -> 'detail' AS about) d
    LEFT JOIN LATERAL (
        SELECT s.subject, (SELECT r.address FROM (SELECT * FROM recipients WHERE message_id = e.message_id OFFSET 0) r
                           WHERE r.account_id = $2 ORDER BY r.n LIMIT 1) AS recipient
        FROM messages s WHERE s.id = e.message_id AND s.account_id = $2 AND NOT is_sealed_source(s.source) LIMIT 1
    ) o ON true
) m ON true
ORDER BY page.event_id DESC;

-- name: list_exchanges
-- List requests and answers of the attempts to deliver event $2 to endpoint $1, in order.
SELECT attempt, url, signature, signature_previous, signature_standard, status_code, answer_headers, answer
FROM webhook_attempts
WHERE webhook_id = $1 AND event_id = $2 ORDER BY attempt, id;

-- name: read_event
-- Read event $2 (seq $3) of account $1, from which its body for endpoint $4 is made.
SELECT e.seq, e.occurred_at, readable_payload(e.type, e.payload) AS payload, m.tags, m.metadata
FROM events e JOIN webhooks w ON w.account_id = $1 AND w.id = $4
:posted_metadata
WHERE e.account_id = $1 AND e.seq = $3 AND e.id = $2 LIMIT 1;

-- name: replay_many
-- Queue events $3 (seqs $4) of account $2 again for its endpoint $1, each with a new retry schedule. Leaves out those that
-- are queued already.
INSERT INTO webhook_queue (webhook_id, event_id, account_id, seq, due_at, attempts, ladder_from)
SELECT $1, n.event_id, $2, n.seq, now(), coalesce(had.attempts, 0), coalesce(had.attempts, 0)
FROM unnest($3::uuid[], $4::bigint[]) AS n (event_id, seq) CROSS JOIN LATERAL (
    SELECT max(a.attempt) AS attempts FROM webhook_attempts a WHERE a.webhook_id = $1 AND a.event_id = n.event_id) had
ON CONFLICT (webhook_id, event_id) DO NOTHING
RETURNING event_id;

-- name: retry_now
-- Make the posts of events $3 that wait for a retry to endpoint $1 of account $2 due now; leaves out those that are being
-- posted.
UPDATE webhook_queue q SET due_at = now()
WHERE q.webhook_id = $1 AND q.account_id = $2 AND q.event_id = ANY ($3::uuid[]) AND q.due_at > now()
  AND (q.leased_until IS NULL OR q.leased_until <= now())
RETURNING q.event_id;

-- name: due_webhooks
-- List endpoints with due posts and the earliest due time: one index step per endpoint with posts. Returns none while an
-- operator holds all deliveries.
WITH RECURSIVE first AS (
    (SELECT webhook_id, due_at FROM webhook_queue ORDER BY webhook_id, due_at LIMIT 1)
    UNION ALL
    SELECT n.webhook_id, n.due_at FROM first CROSS JOIN LATERAL (
        SELECT q.webhook_id, q.due_at FROM webhook_queue q WHERE q.webhook_id > first.webhook_id
        ORDER BY q.webhook_id, q.due_at LIMIT 1) n
)
SELECT webhook_id, due_at FROM first WHERE due_at <= now() AND NOT EXISTS (
    SELECT FROM holds h WHERE h.kind = 'site' AND h.target = '*' AND NOT h.ended AND (h.until IS NULL OR h.until > now()))
  AND NOT EXISTS (SELECT FROM account_moves v JOIN webhooks w ON w.account_id = v.account_id WHERE w.id = first.webhook_id);

-- name: claim
-- Claim due posts of endpoints $1, at most $2 of each, leased for $3 seconds, with event and endpoint if these still
-- exist. Attempts are counted when they are recorded, not here. Returns none while an operator holds all deliveries.
WITH due AS (
    SELECT q.webhook_id, q.event_id
    FROM unnest($1::uuid[], $2::int[]) AS r (webhook_id, room) CROSS JOIN LATERAL (
        SELECT o.webhook_id, o.event_id FROM webhook_queue o
        WHERE o.webhook_id = r.webhook_id AND o.due_at <= now() AND o.account_id NOT IN (SELECT v.account_id FROM account_moves v)
        ORDER BY o.due_at, o.seq LIMIT r.room FOR UPDATE SKIP LOCKED) q
    WHERE NOT EXISTS (
        SELECT FROM holds h
        WHERE h.kind = 'site' AND h.target = '*' AND NOT h.ended AND (h.until IS NULL OR h.until > now()))
), taken AS (
    UPDATE webhook_queue q
    SET due_at = now() + make_interval(secs => $3), leased_until = now() + make_interval(secs => $3)
    FROM due WHERE q.webhook_id = due.webhook_id AND q.event_id = due.event_id
    RETURNING q.webhook_id, q.event_id, q.account_id, q.seq, q.attempts, q.ladder_from, q.late_s
)
SELECT t.webhook_id, t.event_id, t.account_id, t.seq, t.attempts, t.ladder_from, e.occurred_at, e.payload, w.url,
       w.sealed_secret, CASE WHEN w.previous_until > now() THEN w.sealed_previous END AS sealed_previous, w.sealed_headers,
       m.tags, m.metadata, coalesce('standard' = ANY (w.signatures), false) AS signs_standard,
       coalesce(w.honor_retry_after, false) AS honors_retry_after, coalesce(t.late_s, 0) AS late_s
FROM taken t
LEFT JOIN webhooks w ON w.id = t.webhook_id
LEFT JOIN LATERAL (
    SELECT o.occurred_at, o.payload, o.message_id FROM events o
    WHERE o.account_id = t.account_id AND o.seq = t.seq AND o.id = t.event_id LIMIT 1) e ON true
:posted_metadata
ORDER BY t.webhook_id, t.seq;

-- fragment: judged_endpoints
-- Common table expressions that count the posts `n` that are in `moved` for their endpoints. A delivery that ends without
-- success counts as `failing` failures. Rows are locked in the order of ids, so that processes don't deadlock; those of
-- endpoints that neither failed nor recover are not written.
posted AS (
    SELECT n.webhook_id, n.started_at, n.milliseconds, n.delivered, n.status_code, n.error, n.wait_s,
           coalesce(max(n.started_at) FILTER (WHERE n.delivered) OVER (PARTITION BY n.webhook_id), '-infinity') AS ok_at
    FROM n JOIN moved ON moved.id = n.id WHERE n.milliseconds IS NOT NULL
), summed AS (
    SELECT webhook_id, count(*)::integer AS posts, count(*) FILTER (WHERE delivered)::integer AS delivered,
           max(started_at) AS last_at, (array_agg(status_code ORDER BY started_at DESC))[1] AS last_status,
           (array_agg(error ORDER BY started_at DESC))[1] AS last_error,
           (array_agg(milliseconds ORDER BY started_at DESC))[1] AS last_milliseconds,
           coalesce(sum(CASE WHEN wait_s IS NULL THEN :failing ELSE 1 END)
                    FILTER (WHERE NOT delivered AND started_at > ok_at), 0)::integer AS failures,
           min(started_at) FILTER (WHERE NOT delivered AND started_at > ok_at) AS failing_since
    FROM posted GROUP BY webhook_id
), changing AS (
    SELECT w.id FROM webhooks w JOIN summed s ON s.webhook_id = w.id WHERE s.failures > 0 OR w.failures > 0
    ORDER BY w.id FOR NO KEY UPDATE OF w
), judged AS (
    UPDATE webhooks w
    SET failures = CASE WHEN s.delivered > 0 THEN s.failures ELSE w.failures + s.failures END,
        failing_since = CASE WHEN s.delivered > 0 THEN s.failing_since ELSE coalesce(w.failing_since, s.failing_since) END
    FROM changing JOIN summed s ON s.webhook_id = changing.id WHERE w.id = changing.id
), counted AS (
    INSERT INTO webhook_hours AS h (webhook_id, hour, posts, delivered, last_at, last_status, last_error, last_milliseconds)
    SELECT webhook_id, date_trunc('hour', last_at, 'UTC'), posts, delivered, last_at, last_status, last_error,
           last_milliseconds
    FROM summed ORDER BY webhook_id
    ON CONFLICT (webhook_id, hour) DO UPDATE
    SET posts = h.posts + excluded.posts, delivered = h.delivered + excluded.delivered,
        last_at = greatest(h.last_at, excluded.last_at),
        last_status = CASE WHEN excluded.last_at >= h.last_at THEN excluded.last_status ELSE h.last_status END,
        last_error = CASE WHEN excluded.last_at >= h.last_at THEN excluded.last_error ELSE h.last_error END,
        last_milliseconds = CASE WHEN excluded.last_at >= h.last_at THEN excluded.last_milliseconds
                                 ELSE h.last_milliseconds END
)

-- name: record_posts
-- Record attempts at claimed posts, and how their endpoints responded. `wait_s` null ends the delivery. Skips rows whose
-- attempt count has changed since the claim.
WITH n AS MATERIALIZED (
    SELECT * FROM :recorded
), gone AS (
    DELETE FROM webhook_queue q USING n
    WHERE n.wait_s IS NULL AND q.webhook_id = n.webhook_id AND q.event_id = n.event_id AND q.attempts = n.attempts
    RETURNING n.id
), later AS (
    UPDATE webhook_queue q
    SET attempts = q.attempts + 1, due_at = now() + make_interval(secs => n.wait_s), leased_until = NULL,
        late_s = n.late_s
    FROM n
    WHERE n.wait_s IS NOT NULL AND q.webhook_id = n.webhook_id AND q.event_id = n.event_id AND q.attempts = n.attempts
    RETURNING n.id
), moved AS (
    SELECT id FROM gone UNION ALL SELECT id FROM later
), :judged_endpoints
INSERT INTO webhook_attempts (id, webhook_id, event_id, seq, attempt, started_at, milliseconds, delivered, status_code,
                              answer, error, url, signature, signature_previous, signature_standard, answer_headers)
SELECT n.id, n.webhook_id, n.event_id, n.seq, CASE WHEN n.milliseconds IS NULL THEN n.attempts ELSE n.attempts + 1 END,
       n.started_at, n.milliseconds, n.delivered, n.status_code, n.answer, n.error, n.url, n.signature,
       n.signature_previous, n.signature_standard, n.answer_headers
FROM n JOIN moved ON moved.id = n.id
RETURNING id;

-- name: release
-- Make claimed posts due again without an attempt: endpoints $1, events $2, attempts at the claim $3.
UPDATE webhook_queue q SET due_at = now(), leased_until = NULL
FROM unnest($1::uuid[], $2::uuid[], $3::int[]) AS n (webhook_id, event_id, attempts)
WHERE q.webhook_id = n.webhook_id AND q.event_id = n.event_id AND q.attempts = n.attempts;

-- name: give_up
-- End posts to endpoints $1 that were due before $2 and are not claimed, at most $3 of each, with reason $4.
WITH stale AS (
    SELECT q.webhook_id, q.event_id FROM unnest($1::uuid[]) AS w (id) CROSS JOIN LATERAL (
        SELECT o.webhook_id, o.event_id FROM webhook_queue o WHERE o.webhook_id = w.id AND o.due_at < $2
        ORDER BY o.due_at LIMIT $3 FOR UPDATE SKIP LOCKED) q
), gone AS (
    DELETE FROM webhook_queue q USING stale WHERE q.webhook_id = stale.webhook_id AND q.event_id = stale.event_id
    RETURNING q.webhook_id, q.event_id, q.seq, q.attempts
)
INSERT INTO webhook_attempts (id, webhook_id, event_id, seq, attempt, started_at, delivered, error)
SELECT $5, webhook_id, event_id, seq, attempts, now(), false, $4 FROM gone
RETURNING webhook_id;
