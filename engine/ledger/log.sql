-- name: append_events
-- Sealed events: ids $1, accounts $2, seqs $3, types $4, messages $5, times $6, payloads $7, hashes $8; and the posts
-- to the webhooks that want them.
WITH event AS (
    INSERT INTO events (id, account_id, seq, type, message_id, occurred_at, payload, hash)
    SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::text[], $5::uuid[], $6::timestamptz[], $7::text[], $8::bytea[])
    RETURNING id, account_id, seq, type
)
INSERT INTO webhook_queue (webhook_id, event_id, account_id, seq, due_at)
SELECT w.id, e.id, e.account_id, e.seq, now() FROM event e
JOIN webhooks w ON w.account_id = e.account_id AND w.status = 'active' AND webhook_wants(w.event_types, e.type);
