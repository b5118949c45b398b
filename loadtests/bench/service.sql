-- name: any_queued
-- True while a delivery is pending; polled many times a second, so no count.
SELECT EXISTS (SELECT 1 FROM queue) AS any_queued;

-- name: lock_queue
-- Block every reader and writer of the queue until this transaction ends.
LOCK TABLE queue IN ACCESS EXCLUSIVE MODE;

-- name: disable_ed25519
-- Stop signing with Ed25519, as for keys that are not published yet.
UPDATE domain_keys SET status = 'pending' WHERE algorithm = 'ed25519-sha256' AND status = 'active';
