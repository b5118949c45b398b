-- fragment: message_columns
-- Columns of `messages` in the order of MessageRow.
m.id, m.status, m.source, m.sender, m.reply_to, m.subject, m.stream, m.template, m.template_version, m.tags, m.metadata,
m.attachments, m.size_bytes, m.scheduled_at, m.delivered_at, m.resent_from, m.content_hours,
m.traceparent

-- fragment: message_filters
-- Conditions on `messages m` of account $1. Null disables each: status $5, sending domains $6, streams $7, tags $8 (JSON,
-- all of them), metadata $9 (JSON, any of them), patterns $10 (any of them, in the subject, the sender or a recipient),
-- and in $11 by place: 1 source, 2 template, 3 domain of any recipient, 4 broadcast, 5 scope of any bounce.
($5::text IS NULL OR m.status = $5)
      AND ($6::text[] IS NULL OR m.from_domain = ANY ($6))
      AND ($7::text[] IS NULL OR m.stream = ANY ($7))
      AND ($8::jsonb IS NULL OR m.tags @> $8)
      AND ($9::text[] IS NULL OR m.metadata @> ANY ($9::text[]::jsonb[]))
      AND ($10::text[] IS NULL OR m.subject ILIKE ANY($10) OR m.sender ILIKE ANY($10) OR EXISTS (
          SELECT 1 FROM (SELECT * FROM recipients WHERE message_id = m.id OFFSET 0) r
          WHERE r.account_id = $1 AND (r.address ILIKE ANY($10) OR r.name ILIKE ANY($10))))
      AND (($11::text[])[1] IS NULL OR m.source = ($11::text[])[1])
      AND (($11::text[])[2] IS NULL OR m.template = ($11::text[])[2])
      AND (($11::text[])[3] IS NULL OR EXISTS (
          SELECT 1 FROM (SELECT * FROM recipients WHERE message_id = m.id OFFSET 0) r
          WHERE r.account_id = $1 AND domain_of(r.address) = ($11::text[])[3]))
      AND (($11::text[])[4] IS NULL OR EXISTS (
          SELECT 1 FROM broadcast_recipients b WHERE (b.broadcast_id, b.message_id) = (($11::text[])[4]::uuid, m.id)))
      AND (($11::text[])[5] IS NULL OR EXISTS (
          SELECT 1 FROM (SELECT * FROM events WHERE message_id = m.id OFFSET 0) e
          WHERE e.account_id = $1 AND e.type = 'bounced' AND bounce_scope(e.payload) = ($11::text[])[5]))

-- fragment: shown_page
-- The messages of `page` with their recipients, newest first.
SELECT page.*, ARRAY(
    SELECT ROW(r.kind, r.address, r.name, r.status, r.attempts, r.last_response, r.next_attempt_at)
    FROM (SELECT * FROM recipients WHERE message_id = page.id OFFSET 0) r
    WHERE r.account_id = $1 ORDER BY r.n) AS recipients
FROM page ORDER BY page.id DESC

-- name: list_messages
-- List messages of account $1 with $2 <= id < $3 and `message_filters`, newest first, at most $4 (decision 0086).
WITH page AS (
    SELECT :message_columns
    FROM messages m
    WHERE m.account_id = ANY (ARRAY[$1::uuid]) AND m.id >= $2 AND m.id < $3
      AND :message_filters
    ORDER BY m.account_id DESC, m.id DESC
    LIMIT $4
)
:shown_page;

-- name: list_messages_to
-- The same for messages to address $12 (case-insensitive), through the index on addresses. The inner ORDER BY makes a
-- page of an address with a million messages join only one page of them. The row comparison and the subqueries keep the
-- planner on this index, even if the address is very common.
WITH page AS (
    SELECT :message_columns
    FROM (SELECT message_id FROM recipients
          WHERE account_id = $1 AND lower(address) = (SELECT lower($12))
            AND (account_id, lower(address), message_id) >= ($1, (SELECT lower($12)), $2)
            AND (account_id, lower(address), message_id) < ($1, (SELECT lower($12)), $3)
          ORDER BY message_id DESC OFFSET 0) found
    CROSS JOIN LATERAL (SELECT * FROM messages WHERE id = found.message_id OFFSET 0) m
    WHERE m.account_id = $1
      AND :message_filters
    ORDER BY found.message_id DESC
    LIMIT $4
)
:shown_page;

-- name: list_messages_among
-- The same for those of the messages $12.
WITH page AS (
    SELECT :message_columns
    FROM unnest($12::uuid[]) AS found (message_id)
    CROSS JOIN LATERAL (SELECT * FROM messages WHERE id = found.message_id OFFSET 0) m
    WHERE m.account_id = $1 AND m.id >= $2 AND m.id < $3
      AND :message_filters
    ORDER BY m.id DESC
    LIMIT $4
)
:shown_page;

-- name: entries_to_domain
-- Return the newest 500 index entries of messages of account $1 with $2 <= id < $3 with a recipient at domain $4; one entry for each such recipient. They may include others,
-- because numbers of names collide.
SELECT message_id AS message_id FROM recipients
WHERE (account_key(account_id, domain_of(address)), message_id) >= (account_key($1, $4::text), $2)
  AND (account_key(account_id, domain_of(address)), message_id) < (account_key($1, $4::text), $3)
ORDER BY account_key(account_id, domain_of(address)) DESC, message_id DESC LIMIT 500;

-- name: entries_of_template
-- Return the newest 500 index entries of messages of account $1 with $2 <= id < $3 made from template $4. They may include others,
-- because numbers of names collide.
SELECT id AS message_id FROM messages
WHERE (account_key(account_id, template), id) >= (account_key($1, $4::text), $2)
  AND (account_key(account_id, template), id) < (account_key($1, $4::text), $3) AND template IS NOT NULL
ORDER BY account_key(account_id, template) DESC, id DESC LIMIT 500;

-- name: entries_from_source
-- Return the newest 500 index entries of messages of account $1 with $2 <= id < $3 with source $4, which is not `api`. They may include others,
-- because numbers of names collide.
SELECT id AS message_id FROM messages
WHERE (account_key(account_id, source), id) >= (account_key($1, $4::text), $2)
  AND (account_key(account_id, source), id) < (account_key($1, $4::text), $3) AND source <> 'api'
ORDER BY account_key(account_id, source) DESC, id DESC LIMIT 500;

-- name: entries_of_broadcast
-- Return the newest 500 index entries of messages of account $1 with $2 <= id < $3 of broadcast $4, which account $1 must own.
SELECT message_id AS message_id FROM broadcast_recipients
WHERE $1::uuid IS NOT NULL AND broadcast_id = $4 AND message_id >= $2 AND message_id < $3 AND message_id IS NOT NULL
ORDER BY message_id DESC LIMIT 500;

-- name: entries_bounced
-- Return the newest 500 index entries of messages of account $1 with $2 <= id < $3 with a bounce of scope $4; one entry for each bounced recipient. They may include others,
-- because numbers of names collide.
SELECT message_id AS message_id FROM events
WHERE account_key(account_id, bounce_scope(payload)) = account_key($1, $4::text) AND message_id >= $2 AND message_id < $3 AND type = 'bounced'
ORDER BY message_id DESC LIMIT 500;

-- name: entries_of_outcomes
-- Return the newest 500 index entries of messages of account $1 with $2 <= id < $3 with an event of the types $4; one entry
-- for each such event. They may include others, because numbers of names collide.
SELECT message_id FROM unnest($4::text[]) AS wanted (type) CROSS JOIN LATERAL (
    SELECT message_id FROM events
    WHERE (account_key(account_id, type), message_id) >= (account_key($1, wanted.type), $2)
      AND (account_key(account_id, type), message_id) < (account_key($1, wanted.type), $3)
      AND type IN ('bounced', 'complained', 'failed', 'rejected', 'suppressed', 'schedule_canceled', 'schedule_failed')
    ORDER BY account_key(account_id, type) DESC, message_id DESC LIMIT 500) found
ORDER BY message_id DESC LIMIT 500;

-- name: entries_scheduled
-- Return the newest 500 scheduled messages of account $1 with $2 <= id < $3; $4 does not matter.
SELECT message_id FROM schedules
WHERE account_id = $1 AND message_id >= $2 AND message_id < $3 AND $4::text IS NOT NULL
ORDER BY message_id DESC LIMIT 500;

-- name: owns_broadcast
-- Return a row if broadcast $2 belongs to account $1.
SELECT id FROM broadcasts WHERE account_id = $1 AND id = $2;

-- name: read_message
-- Read message $2 of account $1 with its recipients and its waybill, by seq. Its events have ids >= $3, which prunes
-- older partitions. The queue and the schedule keep `deliver_by` while the message waits there.
SELECT :message_columns, ARRAY(
    SELECT ROW(r.kind, r.address, r.name, r.status, r.attempts, r.last_response, r.next_attempt_at)
    FROM (SELECT * FROM recipients WHERE message_id = m.id OFFSET 0) r
    WHERE r.account_id = $1 ORDER BY r.n) AS recipients, coalesce(
    (SELECT s.deliver_by FROM schedules s WHERE s.message_id = m.id AND s.account_id = $1),
    (SELECT max(q.deliver_by) FROM queue q WHERE q.message_id = m.id AND q.account_id = $1)) AS deliver_by, ARRAY(
    SELECT ROW(e.id, e.seq, e.type, e.occurred_at, readable_payload(e.type, e.payload))
    FROM (SELECT * FROM events WHERE message_id = m.id AND id >= $3 OFFSET 0) e
    WHERE e.account_id = $1 ORDER BY e.seq) AS waybill
FROM messages m WHERE m.account_id = $1 AND m.id = $2;

-- name: read_owner
-- Read domain and stream of message $2 of account $1.
SELECT from_domain, stream FROM messages WHERE account_id = $1 AND id = $2;

-- name: addresses_of
-- List the addresses of the recipients of message $2 of account $1.
SELECT address FROM recipients WHERE account_id = $1 AND message_id = $2 ORDER BY n;

-- name: read_files
-- Read the attachments of message $2 of account $1, its size, and whether it forgets its content.
SELECT attachments, size_bytes, content_hours IS NOT NULL AS forgets FROM messages WHERE account_id = $1 AND id = $2;

-- name: read_body
-- Read the composed content of message $2, which account $1 must own; never sealed content.
SELECT b.mime, m.content_hours IS NOT NULL AS forgets, CASE WHEN m.content_hours IS NOT NULL THEN (
    SELECT k.sealed_key FROM content_keys k WHERE k.message_id = m.id) END AS sealed_key
FROM messages m JOIN message_bodies b ON b.message_id = m.id AND b.message_id = $2
WHERE m.account_id = $1 AND m.id = $2 AND NOT is_sealed_source(m.source);
