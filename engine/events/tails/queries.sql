-- name: claim_slot
-- Claim one of the slots 1 to $3 of account $1 for holder $2 and $4 seconds. `tried` is null if all are taken; if `slot`
-- is null, another process has just claimed the slot tried.
WITH free AS (
    SELECT n::smallint AS slot FROM generate_series(1, $3::int) AS n
    WHERE NOT EXISTS (SELECT FROM tail_slots s WHERE s.account_id = $1 AND s.slot = n AND s.expires_at > pg_catalog.now())
    ORDER BY random() LIMIT 1
), taken AS (
    INSERT INTO tail_slots AS s (account_id, slot, holder, expires_at)
    SELECT $1, slot, $2, pg_catalog.now() + $4::float8 * interval '1 second' FROM free
    ON CONFLICT (account_id, slot) DO UPDATE SET holder = excluded.holder, expires_at = excluded.expires_at
    WHERE s.expires_at <= pg_catalog.now()
    RETURNING s.slot
)
SELECT (SELECT slot FROM free) AS tried, (SELECT slot FROM taken) AS slot;

-- name: renew_slots
-- Renew slots $2 of accounts $1 for holders $3 and $4 more seconds; returns the holders that still have theirs. Slots
-- that expired or were lost (the table is unlogged) are claimed again.
INSERT INTO tail_slots AS s (account_id, slot, holder, expires_at)
SELECT n.account_id, n.slot, n.holder, pg_catalog.now() + $4::float8 * interval '1 second'
FROM unnest($1::uuid[], $2::smallint[], $3::uuid[]) AS n (account_id, slot, holder)
ORDER BY n.account_id, n.slot
ON CONFLICT (account_id, slot) DO UPDATE SET holder = excluded.holder, expires_at = excluded.expires_at
WHERE s.holder = excluded.holder OR s.expires_at <= pg_catalog.now()
RETURNING s.holder;

-- name: release_slot
-- Release slot $2 of account $1 if holder $3 has it.
DELETE FROM tail_slots WHERE account_id = $1 AND slot = $2 AND holder = $3;

-- name: read_ends
-- Read the last seq of the logs of accounts $1, and the last seq that retention has deleted.
SELECT account_id, seq, purged_through_seq FROM account_heads WHERE account_id = ANY($1::uuid[]);

-- name: tail_page
-- Read the next hundred events of account $1 after seq $2, up to seq $3, with fields of their messages; $4 bounds the ids
-- from below, to prune old partitions. Sealed messages show no recipients. LIMIT 1 and OFFSET 0 keep the planner at
-- one look-up per event.
SELECT e.id, e.seq, e.type, iso(e.occurred_at) AS created_at, e.message_id,
       readable_payload(e.type, e.payload) AS payload, m.recipient_count, m.sender, m.subject,
       m.from_domain, m.stream, m.tags, ARRAY(
    SELECT ROW(r.name, r.address) FROM (SELECT * FROM recipients WHERE message_id = e.message_id OFFSET 0) r
    WHERE r.account_id = $1 AND r.kind = 'to' AND NOT is_sealed_source(m.source)
    ORDER BY r.n) AS recipients
FROM (
    SELECT id, seq, type, occurred_at, message_id, payload FROM events
    WHERE account_id = $1 AND seq > $2 AND seq <= $3 AND id >= $4
    ORDER BY seq LIMIT 100
) e
LEFT JOIN LATERAL (
    SELECT recipient_count, sender, subject, from_domain, stream, tags, source FROM messages
    WHERE id = e.message_id AND account_id = $1 LIMIT 1
) m ON true
ORDER BY e.seq;

-- name: log_page
-- Read the next hundred events of account $1 after seq $2, up to seq $3; $4 bounds the ids from below, to prune old
-- partitions.
SELECT id, seq, type, coalesce(iso(occurred_at), occurred_at::text) AS created_at, message_id,
       readable_payload(type, payload) AS payload FROM events
WHERE account_id = $1 AND seq > $2 AND seq <= $3 AND id >= $4
ORDER BY seq LIMIT 100;

-- name: read_steps
-- Read the events of messages $2 of account $1 up to seq $3, in order, without payloads that do not change the status;
-- ids >= $4.
SELECT message_id, seq, type, CASE WHEN type IN ('attempted', 'accepted', 'scheduled') THEN NULL ELSE payload END AS payload
FROM events
WHERE message_id = ANY($2::uuid[]) AND account_id = $1 AND seq <= $3 AND id >= $4
ORDER BY seq;

-- name: pull_page
-- Read events of account $1 after seq $2 up to seq $3, oldest first, at most $4, of the types $5 (null: all).
SELECT id, seq, type, coalesce(iso(occurred_at), occurred_at::text) AS created_at, message_id,
       readable_payload(type, payload) AS payload FROM events
WHERE account_id = $1 AND seq > $2 AND seq <= $3 AND ($5::text[] IS NULL OR type = ANY($5))
ORDER BY seq LIMIT $4;
