-- name: replays
-- Return the messages already accepted under the accounts $1 and idempotency keys $2.
SELECT i.account_id, i.key, i.message_id, i.request_digest
FROM unnest($1::uuid[], $2::text[]) AS n (account_id, key)
JOIN idempotency i ON i.account_id = n.account_id AND i.key = n.key;

-- name: insert_accepted
-- Store a batch of accepted messages with their events, queue rows and posts to webhooks, and save the heads; returns
-- the new version of each head. Deliveries fall due after `wait`, by the database's clock. Writes nothing and returns
-- no row unless each head and its account stand at the version `expected` (null: any, for a caller that has locked the
-- heads), no other transaction holds a head, no address `unsuppressed` is suppressed and no idempotency key `unused` is
-- taken. Every change of a head sets another version, so these checks hold until this statement has locked the head.
WITH held AS MATERIALIZED (
    SELECT h.account_id
    FROM :expected
    JOIN account_heads h ON h.account_id = expected.account_id AND (expected.version IS NULL OR h.xmin = expected.version)
    JOIN accounts a ON a.id = h.account_id AND (expected.account_version IS NULL OR a.xmin = expected.account_version)
    ORDER BY h.account_id FOR NO KEY UPDATE OF h SKIP LOCKED
), fits AS MATERIALIZED (
    SELECT 1 WHERE (SELECT count(*) FROM held) = (SELECT count(*) FROM :expected)
      AND NOT EXISTS (SELECT 1 FROM :unsuppressed
                      JOIN suppressions s
                        ON s.account_id = unsuppressed.account_id AND s.address = unsuppressed.address)
      AND NOT EXISTS (SELECT 1 FROM :unsuppressed
                      JOIN erasure_keys k ON k.account_id = unsuppressed.account_id
                      JOIN erased_suppressions e
                        ON e.account_id = k.account_id AND e.digest = address_digest(k.key, unsuppressed.address))
      AND NOT EXISTS (SELECT 1 FROM :unused
                      JOIN idempotency i ON i.account_id = unused.account_id AND i.key = unused.key)
), stored_message AS (
    INSERT INTO messages (:message.names) SELECT message.* FROM :message, fits
), stored_body AS (
    INSERT INTO message_bodies (:body.names) SELECT body.* FROM :body, fits
), stored_recipient AS (
    INSERT INTO recipients (:recipient.names) SELECT recipient.* FROM :recipient, fits
), pending AS (
    INSERT INTO queue (message_id, domain, shard, account_id, from_domain, recipients, total, deliver_by, min_tls, due_at,
                       priority)
    SELECT queued.message_id, queued.domain, queued.shard, queued.account_id, queued.from_domain, queued.recipients, queued.total, queued.deliver_by, queued.min_tls,
           clock_timestamp() + :wait::interval, mail_priority(queued.source, queued.stream)
    FROM :queued, fits
), later AS (
    INSERT INTO schedules (:scheduled.names) SELECT scheduled.* FROM :scheduled, fits
), sealed AS (
    SELECT event.* FROM :event, fits
), :append_events, once AS (
    INSERT INTO idempotency (:idempotency.names) SELECT idempotency.* FROM :idempotency, fits
)
UPDATE account_heads h
SET seq = head.seq, hash = head.hash, rung = head.rung, day = head.day, sent_today = head.sent_today,
    month = head.month, sent_this_month = head.sent_this_month, scheduled = head.scheduled
FROM :head, fits
WHERE h.account_id = head.account_id
RETURNING h.account_id, h.xmin AS version;

-- name: stored_message
-- Return the id of message $1 if it is stored.
SELECT id FROM messages WHERE id = $1;
