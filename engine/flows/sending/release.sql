-- name: any_due
-- The database's time, where a message waits whose time has come by it.
SELECT clock_timestamp() AS at FROM schedules WHERE look_at <= (SELECT clock_timestamp()) LIMIT 1;

-- name: take_due
-- At most $2 messages whose time has come by $1, the longest due first, locked; those that another worker or a
-- cancellation holds are left to it.
SELECT message_id, account_id, due_at, deliver_by, min_tls FROM schedules
WHERE look_at <= $1 ORDER BY look_at LIMIT $2 FOR UPDATE SKIP LOCKED;

-- name: take_fairly
-- The same with at most $3 of any account: one that has a million due keeps nobody waiting. Accounts are found by
-- skipping from one to the next through the index, and their messages along the same one: rows are compared, and keys
-- given as an array, since the planner may otherwise go through all that is due for each account. The time is asked of the
-- row that is locked too, which may have been moved since it was looked for.
WITH RECURSIVE holder AS (
    (SELECT account_id FROM schedules ORDER BY account_id LIMIT 1)
    UNION ALL
    SELECT (SELECT s.account_id FROM schedules s WHERE s.account_id > h.account_id ORDER BY s.account_id LIMIT 1)
    FROM holder h WHERE h.account_id IS NOT NULL
), chosen AS (
    SELECT c.message_id FROM holder h
    CROSS JOIN LATERAL (
        SELECT s.message_id, s.look_at FROM schedules s
        WHERE (s.account_id, s.look_at) >= (h.account_id, '-infinity'::timestamptz)
          AND (s.account_id, s.look_at) <= (h.account_id, $1)
        ORDER BY s.account_id, s.look_at LIMIT $3
    ) c
    ORDER BY c.look_at LIMIT $2
)
SELECT s.message_id, s.account_id, s.due_at, s.deliver_by, s.min_tls FROM schedules s
WHERE s.message_id = ANY (ARRAY(SELECT message_id FROM chosen)) AND s.due_at <= $1 FOR UPDATE SKIP LOCKED;

-- name: load_due
-- What the release of messages $1 looks at, $2 and $3 bounding the ids for partition pruning: their sending domain as
-- it stands now, and all recipients in order.
SELECT m.id, m.from_domain, m.stream, d.status AS domain_status, ARRAY(
    SELECT ROW(r.n, r.address) FROM recipients r
    WHERE r.message_id = m.id AND r.message_id BETWEEN $2 AND $3 ORDER BY r.n) AS recipients
FROM messages m
LEFT JOIN domains d ON d.account_id = m.account_id AND d.name = m.from_domain AND d.deleted_at IS NULL
WHERE m.id = ANY($1::uuid[]) AND m.id BETWEEN $2 AND $3;

-- name: write_released
-- Messages $1 and their recipients leave the schedule with statuses $2; $3 and $4 bound the ids. Messages $5 are looked
-- at again at $6. Pending deliveries, $7-$17: message, domain, shard, account, sending domain, recipients, their
-- number, due, accepted at, no try after, least TLS.
WITH message AS (
    UPDATE messages m SET status = n.status FROM unnest($1::uuid[], $2::text[]) AS n (id, status)
    WHERE m.id = n.id AND m.status = 'scheduled' AND m.id BETWEEN $3 AND $4
), recipient AS (
    UPDATE recipients r SET status = n.status FROM unnest($1::uuid[], $2::text[]) AS n (id, status)
    WHERE r.message_id = n.id AND r.message_id BETWEEN $3 AND $4
), gone AS (
    DELETE FROM schedules WHERE message_id = ANY($1::uuid[])
), later AS (
    UPDATE schedules s SET look_at = n.look_at FROM unnest($5::uuid[], $6::timestamptz[]) AS n (id, look_at)
    WHERE s.message_id = n.id
)
INSERT INTO queue (message_id, domain, shard, account_id, from_domain, recipients, total, due_at, accepted_at, deliver_by,
                   min_tls, priority)
SELECT n.message_id, n.domain, n.shard, n.account_id, n.from_domain, n.recipients::jsonb, n.total, n.due_at, n.accepted_at,
       n.deliver_by, n.min_tls, mail_priority(m.source, m.stream)
FROM unnest($7::uuid[], $8::text[], $9::int[], $10::uuid[], $11::text[], $12::text[], $13::smallint[],
            $14::timestamptz[], $15::timestamptz[], $16::timestamptz[], $17::text[])
     AS n (message_id, domain, shard, account_id, from_domain, recipients, total, due_at, accepted_at, deliver_by, min_tls)
JOIN messages m ON m.id = n.message_id AND m.id BETWEEN $3 AND $4;

-- name: put_off
-- Message $1 is looked at again at $2.
UPDATE schedules SET look_at = $2 WHERE message_id = $1;
