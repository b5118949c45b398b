-- name: try_lock
-- Take the lock of purges; `held` is false if another session has it.
SELECT pg_try_advisory_lock($1::bigint # :lock_schema) AS held;

-- name: unlock
-- Release the lock of purges.
SELECT pg_advisory_unlock($1::bigint # :lock_schema);

-- name: account_retentions
-- Return every account with its retention; a sub-account shares its parent's agreement.
SELECT a.id AS account_id, a.plan, greatest(a.retention_days, p.retention_days, k.days) AS retention_days
FROM accounts a LEFT JOIN accounts p ON p.id = a.parent_id
LEFT JOIN kept_retentions k ON k.account_id = a.id AND k.until > now();

-- name: due_accounts
-- Return at most $2 accounts last swept before $1, the longest ago first.
SELECT a.id AS account_id, a.plan, greatest(a.retention_days, p.retention_days, k.days) AS retention_days
FROM accounts a LEFT JOIN accounts p ON p.id = a.parent_id LEFT JOIN account_records r ON r.account_id = a.id
LEFT JOIN kept_retentions k ON k.account_id = a.id AND k.until > now()
WHERE r.swept_at IS NULL OR r.swept_at < $1
ORDER BY r.swept_at NULLS FIRST, a.id LIMIT $2;

-- name: finish_figures
-- Mark the figures of account $1 for quarter-hours before $2 as final, so that their source can be deleted.
INSERT INTO account_records AS r (account_id, first_quarter) VALUES ($1, $2)
ON CONFLICT (account_id) DO UPDATE SET first_quarter = greatest(r.first_quarter, excluded.first_quarter);

-- name: swept
-- Record that account $1 was swept at $2.
UPDATE account_records SET swept_at = $2 WHERE account_id = $1;

-- name: expired_messages
-- Return at most $3 messages of account $1 with ids below $2 that are neither queued nor scheduled, the oldest first
-- (decision 0086).
SELECT m.id FROM messages m
WHERE m.account_id = ANY (ARRAY[$1::uuid]) AND m.id < $2
  AND NOT EXISTS (SELECT 1 FROM queue q WHERE q.message_id = m.id)
  AND NOT EXISTS (SELECT 1 FROM schedules s WHERE s.message_id = m.id)
ORDER BY m.account_id, m.id LIMIT $3;

-- name: delete_messages
-- Delete messages $1 with bodies and recipients; $2 and $3 bound the ids for partition pruning.
WITH content_key AS (
    DELETE FROM content_keys WHERE message_id = ANY($1::uuid[])
), body AS (
    DELETE FROM message_bodies WHERE message_id = ANY($1::uuid[]) AND message_id BETWEEN $2 AND $3
), recipient AS (
    DELETE FROM recipients WHERE message_id = ANY($1::uuid[]) AND message_id BETWEEN $2 AND $3
)
DELETE FROM messages WHERE id = ANY($1::uuid[]) AND id BETWEEN $2 AND $3;

-- name: oldest_unsent
-- Return by account the oldest message with an id below $1 that is still queued or scheduled.
SELECT account_id, min(message_id::text)::uuid AS message_id FROM (
    SELECT account_id, message_id FROM queue WHERE message_id < $1
    UNION ALL
    SELECT account_id, message_id FROM schedules WHERE message_id < $1
) waiting GROUP BY account_id;

-- name: log_beginning
-- Return the first events of the log of account $1 with ids below $2 that are counted in the figures, in the order of
-- seq, at most $3.
SELECT h.purged_through_seq, e.seq, e.hash
FROM account_heads h JOIN account_records r ON r.account_id = h.account_id
JOIN events e ON e.account_id = h.account_id AND e.seq > h.purged_through_seq AND e.seq <= r.counted_seq AND e.id < $2
WHERE h.account_id = $1 ORDER BY e.seq LIMIT $3;

-- name: purge_log
-- Move the beginning of the log of account $1 from after $2 to after seq $3, whose hash is $4, and delete the events up
-- to there with ids below $5.
WITH head AS (
    UPDATE account_heads SET purged_through_seq = $3, purged_hash = $4
    WHERE account_id = $1 AND purged_through_seq = $2 RETURNING account_id
)
DELETE FROM events e USING head
WHERE e.account_id = head.account_id AND e.account_id = $1 AND e.seq > $2 AND e.seq <= $3 AND e.id < $5;

-- name: delete_keys
-- Read $3 idempotency keys of account $1 after key $2 and delete those of messages with ids below $4.
WITH page AS MATERIALIZED (
    SELECT key, message_id FROM idempotency WHERE account_id = $1 AND key > $2 ORDER BY key LIMIT $3
), gone AS (
    DELETE FROM idempotency i USING page
    WHERE i.account_id = $1 AND i.key = page.key AND i.message_id = page.message_id AND i.message_id < $4
    RETURNING i.key
)
SELECT (SELECT key FROM page ORDER BY key DESC LIMIT 1) AS last, (SELECT count(*) FROM page) AS seen,
       (SELECT count(*) FROM gone) AS gone;

-- name: delete_quarters
-- Delete at most $3 figures of account $1 for quarter-hours before $2.
WITH tagged AS (
    DELETE FROM message_tag_quarters WHERE account_id = $1 AND ctid = ANY (ARRAY(
        SELECT ctid FROM message_tag_quarters WHERE account_id = $1 AND quarter < $2 LIMIT $3))
    RETURNING 1
), untagged AS (
    DELETE FROM message_quarters WHERE account_id = $1 AND ctid = ANY (ARRAY(
        SELECT ctid FROM message_quarters WHERE account_id = $1 AND quarter < $2 LIMIT $3))
    RETURNING 1
)
SELECT (SELECT count(*) FROM tagged) AS tagged, (SELECT count(*) FROM untagged) AS untagged;

-- name: delete_days
-- Delete the figures of account $1 for days before $2.
WITH outcome AS (DELETE FROM account_days WHERE account_id = $1 AND day < $2 RETURNING day),
     accepted AS (DELETE FROM accepted_days WHERE account_id = $1 AND day < $2 RETURNING day),
     simulated AS (DELETE FROM simulated_days WHERE account_id = $1 AND day < $2)
SELECT (SELECT count(*) FROM outcome) + (SELECT count(*) FROM accepted) AS gone;

-- name: delete_alerts
-- Delete at most $3 alert events of account $1 with ids below $2 that have ended.
DELETE FROM alert_events WHERE id IN (
    SELECT id FROM alert_events WHERE account_id = $1 AND id < $2 AND ended_at IS NOT NULL LIMIT $3);

-- name: delete_platform_days
-- Delete the platform's figures for days before $1.
DELETE FROM platform_days WHERE day < $1;

-- name: count_expired
-- Count what a purge of accounts $1 would delete: messages with ids below $2 that are neither queued nor scheduled,
-- events with ids below $3, idempotency keys of messages with ids below $4, received messages with ids below $5.
SELECT (SELECT count(*) FROM messages m JOIN unnest($1::uuid[], $2::uuid[]) AS n (account_id, bound)
            ON m.account_id = n.account_id AND m.id < n.bound
        WHERE NOT EXISTS (SELECT 1 FROM queue q WHERE q.message_id = m.id)
          AND NOT EXISTS (SELECT 1 FROM schedules s WHERE s.message_id = m.id)) AS messages,
       (SELECT count(*) FROM events e JOIN unnest($1::uuid[], $3::uuid[]) AS n (account_id, bound)
            ON e.account_id = n.account_id AND e.id < n.bound) AS events,
       (SELECT count(*) FROM inbound_messages r JOIN unnest($1::uuid[], $5::uuid[]) AS n (account_id, bound)
            ON r.account_id = n.account_id AND r.id < n.bound) AS received,
       (SELECT count(*) FROM idempotency i WHERE i.account_id = ANY($1::uuid[]) AND i.message_id < $4) AS keys;
