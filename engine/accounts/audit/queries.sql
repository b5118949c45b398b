-- name: read_log_head
-- Read both ends of the log of account $1 and the first event outside of them, in one snapshot.
SELECT h.seq, h.hash, h.purged_through_seq, h.purged_hash, least(
    (SELECT min(e.seq) FROM events e WHERE e.account_id = h.account_id AND e.seq > h.seq),
    (SELECT min(e.seq) FROM events e WHERE e.account_id = h.account_id AND e.seq < 1)) AS stray
FROM account_heads h WHERE h.account_id = $1;

-- name: check_page
-- Check the next thousand events of account $1 after seq $2 and id $3, up to seq $4, with hash $5 before them. Returns
-- their number, the last one, the first invalid one and the seq before it, the pairs of messages named in the column
-- and in the payload with the first seq of each, and the events without payload. The order includes the id so that a duplicate seq is seen.
WITH page AS (
    SELECT e.seq, e.id, e.type, e.message_id, e.occurred_at, e.payload, e.hash FROM events e
    WHERE e.account_id = $1 AND e.seq >= $2 AND (e.seq, e.id) > ($2, $3) AND e.seq <= $4
    ORDER BY e.seq, e.id LIMIT 1000
), linked AS (
    SELECT page.*, lag(seq, 1, $2) OVER w AS before, lag(hash, 1, $5) OVER w AS previous
    FROM page WINDOW w AS (ORDER BY seq, id)
), judged AS MATERIALIZED (
    SELECT seq, id, hash, before, seq = before + 1
           AND (payload IS NULL OR event_is_sound(previous, seq, type, message_id, occurred_at, payload, hash)) AS sound,
           payload IS NULL AS is_erased
    FROM linked
), last AS (
    SELECT seq, id, hash FROM judged ORDER BY seq DESC, id DESC LIMIT 1
), broken AS (
    SELECT seq, before FROM judged WHERE NOT sound ORDER BY seq, id LIMIT 1
), named AS (
    SELECT message_id, split_part(payload, '"', 8) AS payload_messages, min(seq) AS seq FROM page
    WHERE message_id IS NOT NULL AND payload IS NOT NULL GROUP BY 1, 2
)
SELECT (SELECT count(*) FROM judged) AS events,
       (SELECT seq FROM last) AS last_seq, (SELECT id FROM last) AS last_id, (SELECT hash FROM last) AS last_hash,
       (SELECT seq FROM broken) AS broken_seq, (SELECT before FROM broken) AS broken_before,
       ARRAY(SELECT message_id FROM named ORDER BY seq) AS messages,
       ARRAY(SELECT payload_messages FROM named ORDER BY seq) AS payload_messages,
       ARRAY(SELECT seq FROM named ORDER BY seq) AS places,
       ARRAY(SELECT seq FROM judged WHERE is_erased ORDER BY seq) AS erased;

-- name: export_page
-- Read the next two hundred events of account $1 after seq $2 and id $3, up to seq $4, with the hash before each ($5 for
-- the first), whether each is valid after the event before it, and whether it is in the time range from $6 to $7.
WITH page AS (
    SELECT e.seq, e.id, e.type, e.message_id, e.occurred_at, e.payload, e.hash FROM events e
    WHERE e.account_id = $1 AND e.seq >= $2 AND (e.seq, e.id) > ($2, $3) AND e.seq <= $4
    ORDER BY e.seq, e.id LIMIT 200
), linked AS (
    SELECT page.*, lag(seq, 1, $2) OVER w AS before, lag(hash, 1, $5) OVER w AS previous
    FROM page WINDOW w AS (ORDER BY seq, id)
)
SELECT seq, id, type, message_id, coalesce(iso(occurred_at), occurred_at::text) AS occurred_at, payload, hash, before, previous,
       seq = before + 1
       AND (payload IS NULL OR event_is_sound(previous, seq, type, message_id, occurred_at, payload, hash)) AS sound,
       ($6::timestamptz IS NULL OR occurred_at >= $6) AND ($7::timestamptz IS NULL OR occurred_at < $7) AS inside
FROM linked ORDER BY seq, id;

-- name: list_page
-- List events of account $1 from seq $2 down to seq $3, newest first, at most $4. Null disables a filter: type $5, time
-- range from $6 to $7, regular expression for the payload $8.
SELECT e.seq, e.id, e.type, coalesce(iso(e.occurred_at), e.occurred_at::text) AS occurred_at, e.payload, e.hash
FROM events e
WHERE e.account_id = $1 AND e.seq <= $2 AND e.seq >= $3
  AND ($5::text IS NULL OR e.type = $5)
  AND ($6::timestamptz IS NULL OR e.occurred_at >= $6) AND ($7::timestamptz IS NULL OR e.occurred_at < $7)
  AND ($8::text IS NULL OR e.payload ~ $8)
ORDER BY e.seq DESC, e.id DESC LIMIT $4;

-- name: hashes_at
-- Read the hashes of the events of account $1 with seqs $2.
SELECT e.seq, e.hash FROM events e WHERE e.account_id = $1 AND e.seq = ANY($2::bigint[]);

-- name: reached
-- Return whether the first event of account $1 from seq $2 on occurred at $3 or later; no row after the last event.
SELECT e.seq, e.occurred_at >= $3 AS reached FROM events e
WHERE e.account_id = $1 AND e.seq >= $2 ORDER BY e.seq LIMIT 1;

-- name: named_erased
-- Return the ranges of erased events that the `erasure.completed` events of account $1 name, as JSON.
SELECT e.payload::jsonb -> 'detail' -> 'entries' #>> '{}' AS entries
FROM erasures r CROSS JOIN LATERAL unnest(r.named_in) AS n (seq)
JOIN events e ON e.account_id = r.account_id AND e.seq = n.seq AND e.type = 'erasure.completed'
WHERE r.account_id = $1 AND e.payload IS NOT NULL;
