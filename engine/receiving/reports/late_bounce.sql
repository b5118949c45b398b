-- name: recipients_of
-- Return the recipients of messages $1, whose ids lie between $2 and $3.
SELECT r.message_id, r.n::int AS n, r.account_id, r.address, r.kind, r.status, 0 AS late_delays,
       (SELECT m.traceparent FROM messages m WHERE m.id = r.message_id AND m.id BETWEEN $2 AND $3) AS traceparent
FROM recipients r
WHERE r.message_id = ANY ($1::uuid[]) AND r.message_id BETWEEN $2 AND $3;

-- name: deliveries_of
-- Return when messages $1 were delivered to which recipients. No event of theirs has an id below $2.
SELECT message_id, occurred_at, payload FROM events
WHERE message_id = ANY ($1::uuid[]) AND id >= $2 AND type = 'delivered' AND payload IS NOT NULL;

-- name: late_delays_of
-- Return the events of delay notices about messages $1. No event of theirs has an id below $2.
SELECT message_id, payload FROM events
WHERE message_id = ANY ($1::uuid[]) AND id >= $2 AND type = 'deferred' AND payload LIKE '%"late":true%';

-- name: record_bounces
-- Record a batch of late bounces: lock the reports and the heads of `accounts` (ascending), seal the events and write
-- everything. Returns 'done', or with nothing written 'changed' if a report was finished meanwhile, an account is being
-- closed, a recipient is not as `expected`, or an address `suppressed` has a reason already that is as strong. It
-- writes: recipients; messages whose present status is among `moves` (comma-separated); counts of days; suppressions;
-- events with their posts to webhooks; the tips of the account logs; the results of the reports. `counts` tells how
-- many of the events, in their order, are each account's. A recipient counts as settled once, so its delivery is
-- subtracted from the day that counted it. `low` and `high` bound the ids for partition pruning, on both sides as in
-- settle.sql.
DECLARE
    event_counts CONSTANT integer[] := :counts;
    unchanged bigint;
    :sealing_variables;
BEGIN
    SELECT count(*) INTO unchanged
    FROM (SELECT FROM report_mails WHERE id = ANY(:finish.id) AND state = 'waiting' ORDER BY id FOR NO KEY UPDATE) AS r;
    IF unchanged < cardinality(:finish.id) THEN
        RETURN 'changed';
    END IF;
    :lock_heads;
    -- Statements of their own, begun under the locks: they see what earlier holders of the locks committed.
    IF coalesce(cardinality(head_seqs), 0) < cardinality(:accounts)
       OR EXISTS (SELECT FROM accounts WHERE id = ANY(:accounts) AND status = 'closing') THEN
        RETURN 'changed';
    END IF;
    SELECT count(*) INTO unchanged
    FROM :expected
    JOIN recipients r ON r.message_id = expected.message_id AND r.n = expected.n AND r.status = expected.status
        AND r.address = expected.address AND r.message_id BETWEEN :low AND :high
    WHERE expected.message_id BETWEEN :low AND :high;
    IF unchanged < (SELECT count(*) FROM :expected) OR EXISTS (
        SELECT FROM :suppressed JOIN suppressions s ON s.account_id = suppressed.account_id
            AND s.address = suppressed.address AND s.reason = ANY(:as_strong)) THEN
        RETURN 'changed';
    END IF;

    :seal_events;

    WITH recipient_updated AS (
        UPDATE recipients r SET status = 'bounced', last_response = bounced.response
        FROM :bounced
        WHERE r.message_id = bounced.message_id AND r.n = bounced.n AND r.message_id BETWEEN :low AND :high
          AND bounced.message_id BETWEEN :low AND :high
    ), message_updated AS (
        UPDATE messages m SET status = moved.status
        FROM :moved
        WHERE m.id = moved.id AND m.status = ANY (string_to_array(moved.moves, ',')) AND m.id BETWEEN :low AND :high
          AND moved.id BETWEEN :low AND :high
    ), day_counted AS (
        INSERT INTO account_days AS d (account_id, day, bounced, delivered)
        SELECT counted.account_id, counted.day, counted.bounced, -counted.taken_back FROM :counted
        WHERE counted.bounced > 0
        ON CONFLICT (account_id, day) DO UPDATE
        SET bounced = d.bounced + excluded.bounced, delivered = greatest(0, d.delivered + excluded.delivered)
    ), earlier_day_counted AS (
        UPDATE account_days d SET delivered = greatest(0, d.delivered - counted.taken_back)
        FROM :counted WHERE d.account_id = counted.account_id AND d.day = counted.day AND counted.bounced = 0
    ), address_suppressed AS (
        INSERT INTO suppressions (account_id, address, reason, message_id, detail, created_at)
        SELECT suppressed.account_id, suppressed.address, suppressed.reason, suppressed.message_id, suppressed.detail,
               clock_timestamp()
        FROM :suppressed
        ON CONFLICT (account_id, address) DO UPDATE
        SET reason = excluded.reason, message_id = excluded.message_id, detail = excluded.detail
    ), finished AS (
        :report_finish
    ), :append_sealed
    UPDATE account_heads h SET seq = tip.seq, hash = tip.hash
    FROM unnest(:accounts, head_seqs, head_hashes) AS tip (account_id, seq, hash) WHERE h.account_id = tip.account_id;
    RETURN 'done';
END;

-- name: forwards_among
-- Return those of the messages $1, with ids from $2 to $3, that forward a received message.
SELECT id, status, metadata->>'inbound_message_id' AS received FROM messages
WHERE id = ANY ($1::uuid[]) AND id BETWEEN $2 AND $3 AND source = 'forward';

-- name: look_at_forwards
-- Queue the received messages $1 whose last forwards, the sent messages $2, have bounced: the forwarder looks at the
-- status of the sent message. A message that is being forwarded again stays as it is queued.
INSERT INTO inbound_forwards (message_id, account_id, forward_to, due_at, sent_as)
SELECT m.id, m.account_id, r.address, now(), sent.id
FROM unnest($1::uuid[], $2::uuid[]) AS sent (received, id)
JOIN inbound_messages m ON m.id = sent.received AND m.forwarded_as = sent.id
JOIN recipients r ON r.message_id = sent.id AND r.n = 0
ON CONFLICT (message_id) DO NOTHING;
