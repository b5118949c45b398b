-- name: new_events
-- Events with ids from $1 on, of account $2 (null: all), with seq above $3, in the order of their ids.
SELECT id, account_id, seq, type, occurred_at, payload FROM events
WHERE id >= $1 AND ($2::uuid IS NULL OR account_id = $2) AND seq > $3 ORDER BY id LIMIT 1000;
