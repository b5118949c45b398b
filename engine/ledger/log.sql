-- fragment: append_events
-- Common table expressions that store the sealed events of the expression `sealed`, with the columns of the row set
-- `event`, and queue a post to each webhook that subscribes to one of them.
event_stored AS (
    INSERT INTO events (:event.names) SELECT * FROM sealed
    RETURNING id, account_id, seq, type, message_id, payload
), event_posted AS (
    INSERT INTO webhook_queue (webhook_id, event_id, account_id, seq, due_at)
    SELECT w.id, e.id, e.account_id, e.seq, now() FROM event_stored e
    JOIN webhooks w ON w.account_id = e.account_id AND w.status = 'active' AND webhook_wants(w.event_types, e.type)
        AND (NOT w.filtered OR webhook_fits(w.domains, w.streams, e.type, e.message_id, e.payload))
)

-- fragment: chained
-- The hash of the next event, within a function that holds the last hash and its own number: as `chained` in log.py.
-- `link` holds what follows the number.
sha256(convert_to(encode(last_hash, 'hex') || E'\n' || last_seq || (:unsealed.link)[sealed_count], 'UTF8'))

-- name: append_events
-- Store sealed events and queue their posts to webhooks.
WITH sealed AS (SELECT event.* FROM :event), :append_events
SELECT 1 WHERE false;
