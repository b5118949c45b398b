-- name: any_queued
-- True while a delivery is pending, of account $1 or of any (null); polled many times a second, so no count.
SELECT EXISTS (SELECT 1 FROM queue WHERE $1::uuid IS NULL OR account_id = $1) AS any_queued;

-- name: wal_position
-- How many octets of WAL the server has written, and the mean size of the stored messages of account $1 (null: none).
SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn AS octets,
       (SELECT avg(size_bytes)::float8 FROM messages WHERE account_id = $1) AS message_bytes;

-- name: lock_queue
-- Block every reader and writer of the queue until this transaction ends.
LOCK TABLE queue IN ACCESS EXCLUSIVE MODE;

-- name: disable_ed25519
-- Stop signing with Ed25519, as for keys that are not published yet.
UPDATE domain_keys SET status = 'pending' WHERE algorithm = 'ed25519-sha256' AND status = 'active';
