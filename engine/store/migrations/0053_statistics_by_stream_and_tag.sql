-- Counts of messages by stream and by tag.

-- '' in rows that were counted before: their messages may be gone.
ALTER TABLE message_quarters ADD COLUMN stream text NOT NULL DEFAULT '';
ALTER TABLE message_quarters DROP CONSTRAINT message_quarters_pkey, ADD PRIMARY KEY (account_id, quarter, from_domain, stream);

-- As message_quarters, of the messages with a tag: one with several tags counts in each of them.
CREATE TABLE message_tag_quarters (
    account_id  uuid NOT NULL REFERENCES accounts,
    tag         text NOT NULL,
    quarter     integer NOT NULL,
    from_domain text NOT NULL,
    stream      text NOT NULL,
    accepted    integer NOT NULL,
    queued      integer NOT NULL,
    sending     integer NOT NULL,
    delivered   integer NOT NULL,
    bounced     integer NOT NULL,
    complained  integer NOT NULL,
    failed      integer NOT NULL,
    rejected    integer NOT NULL,
    scheduled   integer NOT NULL,
    canceled    integer NOT NULL,
    PRIMARY KEY (account_id, tag, quarter, from_domain, stream)
) WITH (fillfactor = 80);

-- Whether a message was accepted for delivery: it does not wait for its time, was not canceled, and not refused then. Its
-- events are read only where the status leaves it open: a scheduled message may be refused at its release or after it.
CREATE FUNCTION was_accepted(account uuid, message uuid, status text, scheduled_at timestamptz) RETURNS boolean
LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT status NOT IN ('scheduled', 'canceled')
       AND (status <> 'rejected' OR scheduled_at IS NULL
            OR EXISTS (SELECT 1 FROM events e
                       WHERE e.message_id = message AND e.account_id = account AND e.type = 'accepted'))
$$;

-- The rows of message_quarters of one account and quarter hour, from the messages themselves.
CREATE FUNCTION count_messages_by_stream(account uuid, counted integer)
RETURNS TABLE (from_domain text, stream text, accepted integer, queued integer, sending integer, delivered integer,
               bounced integer, complained integer, failed integer, rejected integer, scheduled integer, canceled integer)
LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT m.from_domain, m.stream,
           (count(*) FILTER (WHERE was_accepted(account, m.id, m.status, m.scheduled_at)))::integer,
           (count(*) FILTER (WHERE m.status = 'queued'))::integer,
           (count(*) FILTER (WHERE m.status = 'sending'))::integer,
           (count(*) FILTER (WHERE m.status = 'delivered'))::integer,
           (count(*) FILTER (WHERE m.status = 'bounced'))::integer,
           (count(*) FILTER (WHERE m.status = 'complained'))::integer,
           (count(*) FILTER (WHERE m.status = 'failed'))::integer,
           (count(*) FILTER (WHERE m.status = 'rejected'))::integer,
           (count(*) FILTER (WHERE m.status = 'scheduled'))::integer,
           (count(*) FILTER (WHERE m.status = 'canceled'))::integer
    FROM messages m
    WHERE m.account_id = account
      AND m.id >= uuid7_floor(counted::bigint * 900000) AND m.id < uuid7_floor((counted::bigint + 1) * 900000)
    GROUP BY m.from_domain, m.stream
$$;

-- The rows of message_tag_quarters of one account and quarter hour; of the tag `wanted` (null: of the 1,000 tags that were
-- used first, so that an id of each message in its tags can't fill the table).
CREATE FUNCTION count_messages_by_tag(account uuid, counted integer, wanted text)
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
    SELECT t.tag, t.from_domain, t.stream,
           (count(*) FILTER (WHERE was_accepted(account, t.id, t.status, t.scheduled_at)))::integer,
           (count(*) FILTER (WHERE t.status = 'queued'))::integer,
           (count(*) FILTER (WHERE t.status = 'sending'))::integer,
           (count(*) FILTER (WHERE t.status = 'delivered'))::integer,
           (count(*) FILTER (WHERE t.status = 'bounced'))::integer,
           (count(*) FILTER (WHERE t.status = 'complained'))::integer,
           (count(*) FILTER (WHERE t.status = 'failed'))::integer,
           (count(*) FILTER (WHERE t.status = 'rejected'))::integer,
           (count(*) FILTER (WHERE t.status = 'scheduled'))::integer,
           (count(*) FILTER (WHERE t.status = 'canceled'))::integer
    FROM tagged t JOIN kept USING (tag)
    GROUP BY t.tag, t.from_domain, t.stream
$$;

-- Counts of before, where the messages are all there still.
CREATE TEMPORARY TABLE recounted ON COMMIT DROP AS
SELECT q.account_id, q.quarter, c.* FROM (
    SELECT DISTINCT m.account_id, m.quarter FROM message_quarters m
    JOIN account_records r ON r.account_id = m.account_id AND m.quarter >= r.first_quarter) q
CROSS JOIN LATERAL count_messages_by_stream(q.account_id, q.quarter) c;

CREATE TEMPORARY TABLE whole ON COMMIT DROP AS
SELECT account_id, quarter FROM (
    SELECT account_id, quarter,
           sum(queued + sending + delivered + bounced + complained + failed + rejected + scheduled + canceled) AS messages
    FROM message_quarters GROUP BY account_id, quarter) before
JOIN (
    SELECT account_id, quarter,
           sum(queued + sending + delivered + bounced + complained + failed + rejected + scheduled + canceled) AS messages
    FROM recounted GROUP BY account_id, quarter) now USING (account_id, quarter, messages);

DELETE FROM message_quarters q USING whole WHERE q.account_id = whole.account_id AND q.quarter = whole.quarter;
INSERT INTO message_quarters (account_id, quarter, from_domain, stream, accepted, queued, sending, delivered, bounced,
                              complained, failed, rejected, scheduled, canceled)
SELECT r.account_id, r.quarter, r.from_domain, r.stream, r.accepted, r.queued, r.sending, r.delivered, r.bounced,
       r.complained, r.failed, r.rejected, r.scheduled, r.canceled
FROM recounted r JOIN whole USING (account_id, quarter);
INSERT INTO message_tag_quarters (account_id, quarter, tag, from_domain, stream, accepted, queued, sending, delivered,
                                  bounced, complained, failed, rejected, scheduled, canceled)
SELECT w.account_id, w.quarter, c.* FROM whole w CROSS JOIN LATERAL count_messages_by_tag(w.account_id, w.quarter, NULL) c;
-- The function count_messages stays for processes of the version before, until a later migration.
