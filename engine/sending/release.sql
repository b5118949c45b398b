-- name: any_due
-- Return the database's time if a message is due by it.
SELECT clock_timestamp() AS at FROM schedules WHERE look_at <= (SELECT clock_timestamp()) LIMIT 1;

-- name: take_due
-- Lock and return at most $2 messages that are due at $1, the longest due first; skip those that another transaction
-- holds.
SELECT message_id, account_id, due_at, deliver_by, min_tls FROM schedules
WHERE look_at <= $1 AND account_id NOT IN (SELECT v.account_id FROM account_moves v)
ORDER BY look_at LIMIT $2 FOR UPDATE SKIP LOCKED;

-- name: take_fairly
-- Like take_due with at most $3 messages of any account, so that a large backlog of one delays no other. Accounts are
-- found by skipping through the index, and their messages along the same index: comparing rows, and passing keys as an
-- array, keeps the planner from reading everything due for each account. The due time is checked again on the locked
-- row, which may have changed meanwhile.
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
WHERE s.message_id = ANY (ARRAY(SELECT message_id FROM chosen)) AND s.due_at <= $1
  AND s.account_id NOT IN (SELECT v.account_id FROM account_moves v) FOR UPDATE SKIP LOCKED;

-- name: load_due
-- Return the facts for the release of messages $1, with $2 and $3 bounding the ids for partition pruning: the present
-- state of their sending domain, and all recipients in order.
SELECT m.id, m.source, m.from_domain, m.stream, m.content_hours IS NOT NULL AS forgets, m.traceparent, d.status AS domain_status, ARRAY(
    SELECT ROW(r.n, r.address) FROM recipients r
    WHERE r.message_id = m.id AND r.message_id BETWEEN $2 AND $3 ORDER BY r.n) AS recipients
FROM messages m
LEFT JOIN domains d ON d.account_id = m.account_id AND d.name = m.from_domain AND d.deleted_at IS NULL
WHERE m.id = ANY($1::uuid[]) AND m.id BETWEEN $2 AND $3;

-- name: write_released
-- Messages `leaving` and their recipients leave the schedule with a new status; `low` and `high` bound their ids for
-- partition pruning. Messages `staying` are checked again at `look_at`. Deliveries `queued` are due at `at`.
WITH message AS (
    UPDATE messages m SET status = leaving.status FROM :leaving
    WHERE m.id = leaving.id AND m.status = 'scheduled' AND m.id BETWEEN :low AND :high
), recipient AS (
    UPDATE recipients r SET status = leaving.status FROM :leaving
    WHERE r.message_id = leaving.id AND r.message_id BETWEEN :low AND :high
), gone AS (
    DELETE FROM schedules s USING :leaving WHERE s.message_id = leaving.id
), later AS (
    UPDATE schedules s SET look_at = staying.look_at FROM :staying WHERE s.message_id = staying.id
)
INSERT INTO queue (message_id, domain, shard, account_id, from_domain, recipients, total, deliver_by, min_tls, due_at,
                   accepted_at, priority, forgets, traceparent)
SELECT queued.message_id, queued.domain, queued.shard, queued.account_id, queued.from_domain, queued.recipients,
       queued.total, queued.deliver_by, queued.min_tls, :at::timestamptz, :at, mail_priority(queued.source, queued.stream),
       queued.forgets, queued.traceparent
FROM :queued;

-- name: put_off
-- Set the next check of message $1 to $2.
UPDATE schedules SET look_at = $2 WHERE message_id = $1;
