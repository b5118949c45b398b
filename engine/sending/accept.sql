-- name: replays
-- Return the messages already accepted under the accounts $1 and idempotency keys $2.
-- A client that gets such a message has been promised it again. A commit that got no answer may be visible before a
-- synchronous replica has it: the record that is written here makes this transaction wait for the replica (decision 0111).
SELECT i.account_id, i.key, i.message_id, i.request_digest, pg_logical_emit_message(true, 'waybill', '')
FROM unnest($1::uuid[], $2::text[]) AS n (account_id, key)
JOIN idempotency i ON i.account_id = n.account_id AND i.key = n.key;

-- fragment: content_stored
-- Common table expressions that store messages with their bodies, recipients and pending deliveries. Deliveries fall due
-- after `wait`, by the database's clock.
message_stored AS (
    INSERT INTO messages (:message.names) SELECT message.* FROM :message
), body_stored AS (
    INSERT INTO message_bodies (:body.names) SELECT body.* FROM :body
), recipient_stored AS (
    INSERT INTO recipients (:recipient.names) SELECT recipient.* FROM :recipient
), pending AS (
    INSERT INTO queue (message_id, domain, shard, account_id, from_domain, recipients, total, deliver_by, min_tls, due_at,
                       priority, forgets, traceparent)
    SELECT queued.message_id, queued.domain, queued.shard, queued.account_id, queued.from_domain, queued.recipients,
           queued.total, queued.deliver_by, queued.min_tls, clock_timestamp() + :wait::interval,
           mail_priority(queued.source, queued.stream), queued.forgets, queued.traceparent
    FROM :queued
)

-- fragment: keys_stored
-- Stores idempotency keys and keys of content, in a function: a statement of its own costs nothing if there are none.
IF cardinality(:idempotency.key) > 0 THEN
    INSERT INTO idempotency (:idempotency.names) SELECT idempotency.* FROM :idempotency;
END IF;
IF cardinality(:content_key.message_id) > 0 THEN
    INSERT INTO content_keys (:content_key.names) SELECT content_key.* FROM :content_key;
END IF

-- name: insert_accepted
-- Store a batch of accepted messages with their events, queue rows and posts to webhooks, and save the heads, which the
-- caller has locked. Returns the accounts of the heads with the versions of the accounts' rows.
WITH :content_stored, later AS (
    INSERT INTO schedules (:scheduled.names) SELECT scheduled.* FROM :scheduled
), keyed AS (
    INSERT INTO content_keys (:content_key.names) SELECT content_key.* FROM :content_key
), once AS (
    INSERT INTO idempotency (:idempotency.names) SELECT idempotency.* FROM :idempotency
), sealed AS (
    SELECT event.* FROM :event
), :append_events, saved AS (
    UPDATE account_heads h
    SET seq = head.seq, hash = head.hash, rung = head.rung, day = head.day, sent_today = head.sent_today,
        month = head.month, sent_this_month = head.sent_this_month, scheduled = head.scheduled
    FROM :head
    WHERE h.account_id = head.account_id
    RETURNING h.account_id
)
SELECT account_id FROM saved;

-- fragment: lock_counted
-- Locks the heads `counted` (ascending) that stand at the day, month and step of the daily cap of the decisions and have
-- room for the batch (null: no limit). There are fewer of them if another decision is due.
-- A head that another transaction held is read again, with the conditions, once it is free.
SELECT array_agg(h.seq ORDER BY h.account_id), array_agg(h.hash ORDER BY h.account_id)
INTO head_seqs, head_hashes
FROM (SELECT a.account_id, a.seq, a.hash
      FROM account_heads a
      JOIN :counted ON counted.account_id = a.account_id AND counted.rung = a.rung
          AND counted.day = a.day AND (a.sent_today + counted.today <= counted.max_today) IS NOT FALSE
          AND counted.month = a.month
          AND (a.sent_this_month + counted.this_month <= counted.max_this_month) IS NOT FALSE
      ORDER BY a.account_id FOR NO KEY UPDATE OF a) AS h

-- fragment: heads_advanced
-- Adds the messages to the counts of the heads, which end with the sealed events.
UPDATE account_heads h
SET seq = tip.seq, hash = tip.hash, sent_today = h.sent_today + tip.today,
    sent_this_month = h.sent_this_month + tip.this_month
FROM unnest(:counted.account_id, head_seqs, head_hashes, :counted.today, :counted.this_month)
    AS tip (account_id, seq, hash, today, this_month)
WHERE h.account_id = tip.account_id

-- fragment: none_suppressed
-- True unless an address `unsuppressed` is suppressed.
NOT EXISTS (SELECT 1 FROM :unsuppressed
            JOIN suppressions s ON s.account_id = unsuppressed.account_id AND s.address = unsuppressed.address)
AND NOT EXISTS (SELECT 1 FROM :unsuppressed
                JOIN erasure_keys k ON k.account_id = unsuppressed.account_id
                JOIN erased_suppressions e
                  ON e.account_id = k.account_id AND e.digest = address_digest(k.key, unsuppressed.address))

-- name: accept
-- Store a batch of messages that are all accepted, as insert_accepted does: lock the heads `counted` (ascending), check
-- what the decisions depend on, number and hash the events, count the messages. Returns 'done', or 'changed' with
-- nothing written: another decision is due by a head; an account's row is not at the version `counted`; an address
-- `unsuppressed` is suppressed; an idempotency key is taken. `events` tells how many of the events, in their order, are
-- each account's.
DECLARE
    event_counts CONSTANT integer[] := :counted.events;
    unchanged bigint;
    :sealing_variables;
BEGIN
    :lock_counted;
    IF cardinality(head_seqs) IS DISTINCT FROM cardinality(:counted.account_id) THEN
        RETURN 'changed';
    END IF;
    -- A statement of its own, begun under the locks: it sees what earlier holders of the locks committed.
    SELECT count(*) INTO unchanged
    FROM :counted JOIN accounts a ON a.id = counted.account_id AND a.xmin = counted.account_version
    WHERE :none_suppressed
      AND NOT EXISTS (SELECT 1 FROM :idempotency
                      JOIN idempotency i ON i.account_id = idempotency.account_id AND i.key = idempotency.key);
    IF unchanged < cardinality(:counted.account_id) THEN
        RETURN 'changed';
    END IF;

    :seal_events;

    :keys_stored;
    WITH :content_stored, :append_sealed
    :heads_advanced;
    RETURN 'done';
END;

-- name: accept_copies
-- Store a batch of copies of broadcasts that are all accepted, as `accept` does, with their unsubscribe links, and mark
-- their recipients. The heads are locked last: for the events and the commit, between which no client is asked. Returns
-- 'done', or 'changed' with nothing written: a recipient does not wait any more or is suppressed, its broadcast is not
-- sending, or another decision is due by a head or an account's row.
DECLARE
    event_counts CONSTANT integer[] := :counted.events;
    unchanged bigint;
    :sealing_variables;
BEGIN
    WITH :copies_claimed
    SELECT count(*) INTO unchanged FROM claimed WHERE :none_suppressed;
    IF unchanged < cardinality(:mark.contact_id) THEN
        RETURN 'changed';
    END IF;

    :keys_stored;
    WITH :content_stored
    :links_stored;
    :copies_marked;

    :lock_counted;
    SELECT count(*) INTO unchanged
    FROM :counted JOIN accounts a ON a.id = counted.account_id AND a.xmin = counted.account_version;
    IF least(unchanged, coalesce(cardinality(head_seqs), 0)) < cardinality(:counted.account_id) THEN
        RAISE SQLSTATE 'WB001';
    END IF;

    :seal_events;

    WITH :append_sealed
    :heads_advanced;
    RETURN 'done';
EXCEPTION
    WHEN SQLSTATE 'WB001' THEN
        RETURN 'changed';
END;

-- name: stored_message
-- Return the id of message $1 if it is stored, once its commit is on the synchronous replica, as `replays` does.
SELECT id, pg_logical_emit_message(true, 'waybill', '') FROM messages WHERE id = $1;
