-- name: unchanged_rows
-- Return those of the queue rows (messages $1, domains $2, attempts made $3) that are unchanged since the attempt,
-- provided that member $4 is not fenced: its row is locked until the transaction ends.
WITH fence AS MATERIALIZED (SELECT 1 FROM shard_members WHERE id = $4 FOR KEY SHARE)
SELECT q.message_id, q.domain
FROM fence, unnest($1::uuid[], $2::text[], $3::smallint[]) AS n (message_id, domain, attempts)
JOIN queue q ON q.message_id = n.message_id AND q.domain = n.domain AND q.attempts = n.attempts;

-- name: is_member
-- Return member $1 if it holds its leases.
SELECT id FROM shard_members WHERE id = $1;

-- fragment: recipient_update
-- The statement that records an attempt on recipients. `low` and `high` bound the ids for partition pruning. The bounds
-- apply to both sides: for the table alone, the planner takes them for a narrow range and reads everything between them,
-- which is the whole backlog.
UPDATE recipients r
SET status = recipient.status, last_response = recipient.last_response, next_attempt_at = recipient.next_attempt_at,
    attempts = r.attempts + recipient.made
FROM :recipient
WHERE r.message_id = recipient.message_id AND r.n = recipient.n AND r.message_id BETWEEN :low AND :high
  AND recipient.message_id BETWEEN :low AND :high

-- name: update_recipients
-- Record an attempt on recipients before the rest of a batch is settled.
:recipient_update;

-- name: recipient_statuses
-- Return the statuses of all recipients of messages $1, whose ids lie between $2 and $3.
SELECT message_id, array_agg(status) AS statuses FROM recipients
WHERE message_id = ANY($1::uuid[]) AND message_id BETWEEN $2 AND $3 GROUP BY message_id;

-- name: settle
-- Settle a batch of outcomes: lock the heads of `accounts` (ascending), seal the events and write everything. Returns
-- 'done', or with nothing written 'changed' if a head or a queue row `found` is not as it was at the attempt, and
-- 'fenced' if `member` is (null: not checked). It writes: recipients (none if update_recipients has run); messages whose
-- status changes, if the present one is among `moves`, comma-separated; queue rows that end, and rows that are due again
-- after `wait` by the database's clock; account days; events with their posts to webhooks; the tips of the account logs.
-- `counts` tells how many of the events, in their order, are each account's.
DECLARE
    event_counts CONSTANT integer[] := :counts;
    unchanged bigint;
    :sealing_variables;
BEGIN
    :lock_heads;
    IF cardinality(head_seqs) IS DISTINCT FROM cardinality(:accounts) THEN
        RETURN 'changed';
    END IF;
    -- A statement of its own, begun under the locks: it sees what earlier holders of the locks committed.
    WITH fence AS MATERIALIZED (SELECT 1 FROM shard_members WHERE id = :member FOR KEY SHARE)
    SELECT CASE WHEN :member IS NULL OR EXISTS (SELECT 1 FROM fence) THEN (
        SELECT count(*) FROM :found
        JOIN queue q ON q.message_id = found.message_id AND q.domain = found.domain AND q.attempts = found.attempts) END
    INTO unchanged;
    IF unchanged IS NULL THEN
        RETURN 'fenced';
    END IF;
    IF unchanged < (SELECT count(*) FROM :found) THEN
        RETURN 'changed';
    END IF;

    :seal_events;

    WITH recipient_updated AS (
        :recipient_update
    ), message_updated AS (
        UPDATE messages m SET status = message.status, delivered_at = coalesce(message.delivered_at, m.delivered_at)
        FROM :message
        WHERE m.id = message.id AND m.status = ANY(string_to_array(message.moves, ',')) AND m.id BETWEEN :low AND :high
          AND message.id BETWEEN :low AND :high
    ), queue_ended AS (
        DELETE FROM queue q USING :found
        WHERE q.message_id = found.message_id AND q.domain = found.domain AND found.ends
    ), queue_later AS (
        UPDATE queue q SET recipients = later.recipients, due_at = clock_timestamp() + later.wait,
            attempts = q.attempts + 1, signature = coalesce(later.signature, q.signature), waiting = NULL,
            held_by = NULL, waits = later.waits
        FROM :later
        WHERE q.message_id = later.message_id AND q.domain = later.domain
    ), day_counted AS (
        INSERT INTO account_days AS d (:day.names)
        SELECT day.* FROM :day
        ON CONFLICT (account_id, day) DO UPDATE
        SET delivered = d.delivered + excluded.delivered, bounced = d.bounced + excluded.bounced,
            complained = d.complained + excluded.complained, failed = d.failed + excluded.failed
    ), :append_sealed
    UPDATE account_heads h SET seq = tip.seq, hash = tip.hash
    FROM unnest(:accounts, head_seqs, head_hashes) AS tip (account_id, seq, hash) WHERE h.account_id = tip.account_id;

    -- A statement of its own: it sees which deliveries are left, and costs nothing if no message forgets its content.
    IF true = ANY (:found.forgets) THEN
        WITH candidates AS (
            SELECT DISTINCT found.message_id FROM :found WHERE found.forgets AND found.ends
        ), :content_forgotten;
    END IF;
    RETURN 'done';
END;
