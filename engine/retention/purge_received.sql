-- name: next_received
-- Return the oldest $3 received messages of account $1 with ids below $2 (decision 0086).
SELECT id FROM inbound_messages WHERE account_id = ANY (ARRAY[$1::uuid]) AND id < $2 ORDER BY account_id, id LIMIT $3;

-- name: forget_copies
-- Delete at most $2 digests of messages that were stored before $1.
DELETE FROM inbound_recent WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM inbound_recent WHERE stored_at < $1 ORDER BY stored_at LIMIT $2));

-- name: forget_empty_counts
-- Delete the kept counts of account $1 that are zero and whose addresses are deleted.
DELETE FROM inbound_counts c WHERE c.account_id = $1 AND c.messages = 0
  AND NOT EXISTS (SELECT 1 FROM inbound_addresses a WHERE a.id = c.address_id);

-- name: forget_empty_days
-- Delete the kept counts of account $1 by day that are zero.
DELETE FROM inbound_day_counts WHERE account_id = $1 AND messages = 0;
