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

-- fragment: sealing_variables
-- The variables of functions that lock heads and seal events; the functions declare `event_counts` themselves.
head_seqs     bigint[];
head_hashes   bytea[];
sealed_seqs   bigint[] := '{}';
sealed_hashes bytea[] := '{}';
sealed_count  integer := 0;
last_seq      bigint;
last_hash     bytea

-- fragment: lock_heads
-- Locks the heads of `accounts`. There are fewer of them than accounts if an account is missing.
SELECT array_agg(h.seq ORDER BY h.account_id), array_agg(h.hash ORDER BY h.account_id)
INTO head_seqs, head_hashes
FROM (SELECT a.account_id, a.seq, a.hash FROM account_heads a WHERE a.account_id = ANY(:accounts)
      ORDER BY a.account_id FOR NO KEY UPDATE) AS h

-- fragment: seal_events
-- Numbers and hashes the events `unsealed`, which stand in the order of their accounts, and advances the heads.
-- `event_counts` tells how many events each head has. The hash is that of `chained` in log.py; `link` holds what follows
-- the number.
FOR own IN 1..cardinality(event_counts) LOOP
    last_seq := head_seqs[own];
    last_hash := head_hashes[own];
    FOR step IN 1..event_counts[own] LOOP
        last_seq := last_seq + 1;
        sealed_count := sealed_count + 1;
        last_hash := sha256(convert_to(
            encode(last_hash, 'hex') || E'\n' || last_seq || (:unsealed.link)[sealed_count], 'UTF8'));
        sealed_seqs[sealed_count] := last_seq;
        sealed_hashes[sealed_count] := last_hash;
    END LOOP;
    head_seqs[own] := last_seq;
    head_hashes[own] := last_hash;
END LOOP

-- fragment: append_sealed
-- Common table expressions that store the events that `seal_events` has sealed, as `append_events` does.
sealed AS (
    SELECT unsealed.id, unsealed.account_id, sealed_seqs[unsealed.place] AS seq, unsealed.type, unsealed.message_id,
           unsealed.occurred_at, substr(unsealed.link, 27) AS payload, sealed_hashes[unsealed.place] AS hash
    FROM :unsealed
), :append_events

-- name: append_events
-- Store sealed events and queue their posts to webhooks.
WITH sealed AS (SELECT event.* FROM :event), :append_events
SELECT 1 WHERE false;
