-- name: log_ends
-- Return the end of the log of account $1, its first event that retention kept, and how far deliveries are counted.
SELECT h.seq AS tip, h.purged_through_seq AS purged, coalesce(c.counted_seq, 0) AS counted
FROM account_heads h LEFT JOIN delivery_counts c ON c.account_id = h.account_id WHERE h.account_id = $1;

-- name: scan_log
-- Return the events of account $1 after seq $2 up to seq $3 that match patterns $4 and expressions $5, or concern a message
-- whose recipients are all erased ($6 stands in place of their address). Events of erasures are left out.
SELECT e.seq, e.id FROM events e
WHERE e.account_id = $1 AND e.seq > $2 AND e.seq <= $3 AND e.payload IS NOT NULL AND e.type NOT LIKE 'erasure.%'
  AND (lower(e.payload) LIKE ANY ($4::text[]) AND lower(e.payload) ~ ANY ($5::text[])
       OR e.message_id IS NOT NULL
          AND EXISTS (SELECT FROM recipients r WHERE r.message_id = e.message_id AND r.address = $6)
          AND NOT EXISTS (SELECT FROM recipients r WHERE r.message_id = e.message_id AND r.address <> $6))
ORDER BY e.seq;

-- name: erase_entries
-- Erase the payloads of the events with seqs $2 and ids $3 of account $1, and what their posts to webhooks recorded.
WITH webhook AS (
    SELECT id FROM webhooks WHERE account_id = $1
), pending AS (
    DELETE FROM webhook_queue q USING webhook WHERE q.webhook_id = webhook.id AND q.event_id = ANY ($3::uuid[])
), attempted AS (
    DELETE FROM webhook_attempts a USING webhook WHERE a.webhook_id = webhook.id AND a.event_id = ANY ($3::uuid[])
    RETURNING a.event_id
), entry AS (
    UPDATE events SET payload = NULL WHERE account_id = $1 AND seq = ANY ($2::bigint[]) AND id = ANY ($3::uuid[])
)
SELECT count(*) AS attempts FROM attempted;
