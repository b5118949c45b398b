-- name: lock_billing_head
-- Lock and return the end of the billing history of account $1; create it with the hash $2 if it has none.
INSERT INTO billing_heads AS h (account_id, seq, hash) VALUES ($1, 0, $2)
ON CONFLICT (account_id) DO UPDATE SET seq = h.seq
RETURNING h.seq, h.hash, h.purged_through_seq, h.purged_hash;

-- name: append_billing_events
-- Insert events.
INSERT INTO billing_events (:event.names) SELECT * FROM :event;

-- name: save_billing_head
-- Store the end of the history of account $1.
UPDATE billing_heads SET seq = $2, hash = $3 WHERE account_id = $1;

-- name: billing_head
-- Return both ends of the history of account $1.
SELECT seq, hash, purged_through_seq, purged_hash FROM billing_heads WHERE account_id = $1;

-- name: billing_events_after
-- Return at most $3 events of account $1 with a number above $2, oldest first.
SELECT account_id, seq, type, occurred_at, payload, hash FROM billing_events
WHERE account_id = $1 AND seq > $2 ORDER BY seq LIMIT $3;
