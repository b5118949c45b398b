-- name: read_certified
-- Read the end of the log of account $1, and message $2 with its recipients and its events, which have ids >= $3. Each
-- event is checked against the hash before it.
WITH own AS MATERIALIZED (
    SELECT e.* FROM (SELECT * FROM events WHERE message_id = $2 AND id >= $3 OFFSET 0) e WHERE e.account_id = $1
), before AS MATERIALIZED (
    SELECT e.seq, e.hash FROM events e WHERE e.account_id = $1 AND e.seq = ANY (ARRAY(SELECT seq - 1 FROM own))
    UNION ALL
    SELECT h.purged_through_seq, h.purged_hash FROM account_heads h WHERE h.account_id = $1
)
SELECT h.seq AS log_seq, h.hash AS log_hash, m.status, m.delivered_at, m.size_bytes, ARRAY(
    SELECT ROW(r.kind, r.address, r.status)
    FROM (SELECT * FROM recipients WHERE message_id = m.id OFFSET 0) r
    WHERE r.account_id = $1 ORDER BY r.n) AS recipients, ARRAY(
    SELECT ROW(o.id, o.seq, o.type, o.occurred_at, o.payload, o.hash, o.payload IS NULL OR event_is_sound(
        (SELECT b.hash FROM before b WHERE b.seq = o.seq - 1 LIMIT 1),
        o.seq, o.type, o.message_id, o.occurred_at, o.payload, o.hash))
    FROM own o ORDER BY o.seq) AS events
FROM account_heads h LEFT JOIN messages m ON m.account_id = h.account_id AND m.id = $2
WHERE h.account_id = $1;

-- name: active_key
-- Read the key that signs now.
SELECT kid, public_key, sealed_key, made_at, retired_at FROM certificate_keys WHERE retired_at IS NULL;

-- name: all_keys
-- Read all keys, the newest first.
SELECT kid, public_key, sealed_key, made_at, retired_at FROM certificate_keys ORDER BY made_at DESC, kid;

-- name: insert_key
-- Store key $1 with its public half $2 and its sealed private half $3, made at $4, unless another one signs.
INSERT INTO certificate_keys (kid, public_key, sealed_key, made_at) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING;

-- name: lock_keys
-- Let one transaction at a time change which key signs.
SELECT pg_advisory_xact_lock($1::bigint # :lock_schema);

-- name: retire_key
-- Retire the key that signs, at $1, and delete its private half.
UPDATE certificate_keys SET retired_at = $1, sealed_key = NULL WHERE retired_at IS NULL RETURNING kid;
