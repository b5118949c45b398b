-- name: any_queued
-- Whether a delivery is pending: asked many times a second, so nothing is counted.
SELECT EXISTS (SELECT 1 FROM queue) AS any_queued;

-- name: lock_queue
-- Nobody reads or writes the queue until this transaction ends.
LOCK TABLE queue IN ACCESS EXCLUSIVE MODE;

-- name: rsa_alone
-- Ed25519 keys sign nothing, as before they are found published.
UPDATE domain_keys SET status = 'pending' WHERE algorithm = 'ed25519-sha256' AND status = 'active';
