-- name: claim_slot
-- One of the places 1 to $3 of account $1 for holder $2 and $4 seconds. `tried` is null when all are taken; a place that
-- was tried and not got has just gone to somebody else.
WITH free AS (
    SELECT n::smallint AS slot FROM generate_series(1, $3::int) AS n
    WHERE NOT EXISTS (SELECT FROM tail_slots s WHERE s.account_id = $1 AND s.slot = n AND s.expires_at > now())
    ORDER BY random() LIMIT 1
), taken AS (
    INSERT INTO tail_slots AS s (account_id, slot, holder, expires_at)
    SELECT $1, slot, $2, now() + $4::float8 * interval '1 second' FROM free
    ON CONFLICT (account_id, slot) DO UPDATE SET holder = excluded.holder, expires_at = excluded.expires_at
    WHERE s.expires_at <= now()
    RETURNING s.slot
)
SELECT (SELECT slot FROM free) AS tried, (SELECT slot FROM taken) AS slot;

-- name: renew_slots
-- Hold the places $2 of accounts $1 for holders $3 and $4 more seconds; gives the holders that still have theirs. A place
-- that is gone (the table does not outlive a crash of the server) or has expired is taken again.
INSERT INTO tail_slots AS s (account_id, slot, holder, expires_at)
SELECT n.account_id, n.slot, n.holder, now() + $4::float8 * interval '1 second'
FROM unnest($1::uuid[], $2::smallint[], $3::uuid[]) AS n (account_id, slot, holder)
ORDER BY n.account_id, n.slot
ON CONFLICT (account_id, slot) DO UPDATE SET holder = excluded.holder, expires_at = excluded.expires_at
WHERE s.holder = excluded.holder OR s.expires_at <= now()
RETURNING s.holder;

-- name: release_slot
-- Give place $2 of account $1 back, which holder $3 has.
DELETE FROM tail_slots WHERE account_id = $1 AND slot = $2 AND holder = $3;

-- name: read_ends
-- The last place of the logs of accounts $1, and up to where retention has taken events.
SELECT account_id, seq, purged_through_seq FROM account_heads WHERE account_id = ANY($1::uuid[]);

-- name: tail_page
-- The next hundred events of account $1 behind place $2, up to place $3, with what their messages say; ids not below $4
-- (a bound that spares old partitions). LIMIT 1 keeps the planner at one look-up per event.
SELECT e.id, e.seq, e.type, iso(e.occurred_at) AS created_at, e.message_id, e.payload, m.recipient_count, m.sender, m.subject,
       m.stream, m.tags, ARRAY(
    SELECT ROW(r.name, r.address) FROM recipients r
    WHERE r.message_id = e.message_id AND r.account_id = $1 AND r.kind = 'to' ORDER BY r.n) AS recipients
FROM (
    SELECT id, seq, type, occurred_at, message_id, payload FROM events
    WHERE account_id = $1 AND seq > $2 AND seq <= $3 AND id >= $4
    ORDER BY seq LIMIT 100
) e
LEFT JOIN LATERAL (
    SELECT recipient_count, sender, subject, stream, tags FROM messages
    WHERE id = e.message_id AND account_id = $1 LIMIT 1
) m ON true
ORDER BY e.seq;

-- name: read_steps
-- What the events of messages $2 of account $1 say of their way, up to place $3, in order; ids not below $4.
SELECT message_id, seq, type, CASE WHEN type IN ('attempted', 'accepted', 'scheduled') THEN NULL ELSE payload END AS payload
FROM events
WHERE message_id = ANY($2::uuid[]) AND account_id = $1 AND seq <= $3 AND id >= $4
ORDER BY seq;

-- name: pull_page
-- Events of account $1 behind place $2 up to place $3, oldest first, at most $4; of the types $5, where given.
SELECT id, seq, type, coalesce(iso(occurred_at), occurred_at::text) AS created_at, message_id, payload FROM events
WHERE account_id = $1 AND seq > $2 AND seq <= $3 AND ($5::text[] IS NULL OR type = ANY($5))
ORDER BY seq LIMIT $4;
