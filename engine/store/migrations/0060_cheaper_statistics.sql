-- Counting a quarter hour evaluated eleven conditions for each message: 5 µs, half a second for 100,000. Messages are now
-- grouped by status first, and the conditions decide on groups. `doubtful`: a message of which its events tell whether it
-- was accepted (see was_accepted).

CREATE OR REPLACE FUNCTION count_messages_by_stream(account uuid, counted integer)
RETURNS TABLE (from_domain text, stream text, accepted integer, queued integer, sending integer, delivered integer,
               bounced integer, complained integer, failed integer, rejected integer, scheduled integer, canceled integer)
LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT g.from_domain, g.stream,
           (coalesce(sum(g.messages) FILTER (WHERE was_accepted(account, g.doubtful, g.status, g.doubtful_at)), 0))::integer,
           (coalesce(sum(g.messages) FILTER (WHERE g.status = 'queued'), 0))::integer,
           (coalesce(sum(g.messages) FILTER (WHERE g.status = 'sending'), 0))::integer,
           (coalesce(sum(g.messages) FILTER (WHERE g.status = 'delivered'), 0))::integer,
           (coalesce(sum(g.messages) FILTER (WHERE g.status = 'bounced'), 0))::integer,
           (coalesce(sum(g.messages) FILTER (WHERE g.status = 'complained'), 0))::integer,
           (coalesce(sum(g.messages) FILTER (WHERE g.status = 'failed'), 0))::integer,
           (coalesce(sum(g.messages) FILTER (WHERE g.status = 'rejected'), 0))::integer,
           (coalesce(sum(g.messages) FILTER (WHERE g.status = 'scheduled'), 0))::integer,
           (coalesce(sum(g.messages) FILTER (WHERE g.status = 'canceled'), 0))::integer
    FROM (
        SELECT m.from_domain, m.stream, m.status, CASE m.status WHEN 'rejected' THEN m.scheduled_at END AS doubtful_at,
               CASE WHEN m.status = 'rejected' AND m.scheduled_at IS NOT NULL THEN m.id END AS doubtful, count(*) AS messages
        FROM messages m
        WHERE m.account_id = account
          AND m.id >= uuid7_floor(counted::bigint * 900000) AND m.id < uuid7_floor((counted::bigint + 1) * 900000)
        GROUP BY 1, 2, 3, 4, 5
    ) g
    GROUP BY g.from_domain, g.stream
$$;

CREATE OR REPLACE FUNCTION count_messages_by_tag(account uuid, counted integer, wanted text)
RETURNS TABLE (tag text, from_domain text, stream text, accepted integer, queued integer, sending integer, delivered integer,
               bounced integer, complained integer, failed integer, rejected integer, scheduled integer, canceled integer)
LANGUAGE sql STABLE PARALLEL SAFE AS $$
    WITH tagged AS MATERIALIZED (
        SELECT m.id, m.from_domain, m.stream, m.status, m.scheduled_at, own.tag
        FROM messages m CROSS JOIN LATERAL (SELECT DISTINCT jsonb_array_elements_text(m.tags) AS tag) own
        WHERE m.account_id = account AND m.tags IS NOT NULL AND (wanted IS NULL OR own.tag = wanted)
          AND m.id >= uuid7_floor(counted::bigint * 900000) AND m.id < uuid7_floor((counted::bigint + 1) * 900000)
    ), kept AS (
        SELECT t.tag FROM tagged t GROUP BY t.tag ORDER BY min(t.id::text), t.tag LIMIT 1000
    )
    SELECT g.tag, g.from_domain, g.stream,
           (coalesce(sum(g.messages) FILTER (WHERE was_accepted(account, g.doubtful, g.status, g.doubtful_at)), 0))::integer,
           (coalesce(sum(g.messages) FILTER (WHERE g.status = 'queued'), 0))::integer,
           (coalesce(sum(g.messages) FILTER (WHERE g.status = 'sending'), 0))::integer,
           (coalesce(sum(g.messages) FILTER (WHERE g.status = 'delivered'), 0))::integer,
           (coalesce(sum(g.messages) FILTER (WHERE g.status = 'bounced'), 0))::integer,
           (coalesce(sum(g.messages) FILTER (WHERE g.status = 'complained'), 0))::integer,
           (coalesce(sum(g.messages) FILTER (WHERE g.status = 'failed'), 0))::integer,
           (coalesce(sum(g.messages) FILTER (WHERE g.status = 'rejected'), 0))::integer,
           (coalesce(sum(g.messages) FILTER (WHERE g.status = 'scheduled'), 0))::integer,
           (coalesce(sum(g.messages) FILTER (WHERE g.status = 'canceled'), 0))::integer
    FROM (
        SELECT t.tag, t.from_domain, t.stream, t.status, CASE t.status WHEN 'rejected' THEN t.scheduled_at END AS doubtful_at,
               CASE WHEN t.status = 'rejected' AND t.scheduled_at IS NOT NULL THEN t.id END AS doubtful, count(*) AS messages
        FROM tagged t JOIN kept USING (tag)
        GROUP BY 1, 2, 3, 4, 5, 6
    ) g
    GROUP BY g.tag, g.from_domain, g.stream
$$;
