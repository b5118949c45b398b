-- name: unsent_below
-- Return whether a message with an id below $1 is still queued or scheduled.
SELECT EXISTS (SELECT 1 FROM queue WHERE message_id < $1) OR EXISTS (SELECT 1 FROM schedules WHERE message_id < $1) AS unsent;

-- name: unfinished
-- Return whether an account opened before $1 has figures that are not final up to quarter-hour $2.
SELECT EXISTS (
    SELECT 1 FROM accounts a LEFT JOIN account_records r ON r.account_id = a.id
    WHERE a.created_at < $1 AND coalesce(r.first_quarter, 0) < $2) AS unfinished;

-- name: log_ends
-- Return the last event of each account with an id from $1 up to but without $2, and how far its log is counted.
SELECT h.account_id, e.seq, e.hash, coalesce(r.counted_seq, 0) AS counted_seq
FROM account_heads h LEFT JOIN account_records r ON r.account_id = h.account_id
CROSS JOIN LATERAL (
    SELECT seq, hash FROM events
    WHERE account_id = h.account_id AND id >= $1 AND id < $2 ORDER BY seq DESC LIMIT 1
) e;

-- name: move_beginnings
-- Move the beginnings of the logs of accounts $1, whose heads are locked, to after seqs $2 with hashes $3. Also deletes
-- events up to there with ids from $4 to below $5, which a fast clock has put into a later week.
WITH given AS (
    SELECT n.account_id, n.seq, n.hash FROM unnest($1::uuid[], $2::bigint[], $3::bytea[]) AS n (account_id, seq, hash)
    JOIN account_heads h ON h.account_id = n.account_id AND h.purged_through_seq < n.seq
), stray AS (
    DELETE FROM events e USING given
    WHERE e.account_id = given.account_id AND e.seq <= given.seq AND e.id >= $4 AND e.id < $5
)
UPDATE account_heads h SET purged_through_seq = given.seq, purged_hash = given.hash
FROM given WHERE h.account_id = given.account_id;
