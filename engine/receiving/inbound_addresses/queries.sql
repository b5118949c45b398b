-- fragment: address_columns
-- The columns of one claimed address.
id, address, canonical, label, enabled, created_at, last_received_at, in_plan

-- name: list_addresses
-- List addresses of account $1 under domains $3 (null: all) with ids below $2 (null: from the newest), newest first, at
-- most $4 (decision 0086).
SELECT :address_columns FROM inbound_addresses
WHERE account_id = ANY (ARRAY[$1::uuid]) AND ($2::uuid IS NULL OR id < $2)
  AND ($3::text[] IS NULL OR split_part(canonical, '@', 2) = ANY ($3))
ORDER BY account_id DESC, id DESC LIMIT $4;

-- name: read_address
-- Read address $2 of account $1, if it is under domains $3 (null: all).
SELECT :address_columns FROM inbound_addresses
WHERE account_id = $1 AND id = $2 AND ($3::text[] IS NULL OR split_part(canonical, '@', 2) = ANY ($3));

-- name: find_addresses
-- Read the addresses of account $1 with the canonical forms $2.
SELECT :address_columns FROM inbound_addresses WHERE account_id = $1 AND canonical = ANY ($2::text[]);

-- name: count_addresses
-- Count the addresses of account $1 that its plan counts.
SELECT count(*) AS used FROM inbound_addresses WHERE account_id = $1 AND in_plan;

-- name: count_unread
-- Count the unread messages in the mailbox of address $2 of account $1, without spam.
SELECT coalesce(sum(messages), 0)::bigint AS unread FROM inbound_counts
WHERE account_id = $1 AND address_id = $2 AND in_mailbox AND NOT is_spam AND NOT is_read;

-- name: claimable_domain
-- Read the domain named $2 of account $1.
SELECT id, status FROM domains WHERE account_id = $1 AND name = $2 AND deleted_at IS NULL;

-- name: insert_address
-- Insert address $1 of account $2 under domain $3 (null: a domain of the service): as claimed $4, canonical $5, label $6,
-- and whether the plan counts it $7.
INSERT INTO inbound_addresses (id, account_id, domain_id, address, canonical, label, in_plan, created_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, clock_timestamp())
RETURNING :address_columns;

-- name: change_address
-- Change address $2 of account $1: label $3, and whether it is enabled $4.
UPDATE inbound_addresses SET label = $3, enabled = $4 WHERE account_id = $1 AND id = $2
RETURNING :address_columns;

-- name: delete_address
-- Delete address $2 of account $1 with its route; returns the route's id if there was one.
WITH route AS (
    DELETE FROM inbound_routes WHERE account_id = $1 AND address_id = $2 RETURNING id
), address AS (
    DELETE FROM inbound_addresses WHERE account_id = $1 AND id = $2
)
SELECT id FROM route;

-- name: label_owner
-- Read the account whose managed receiving domain has label $1.
SELECT account_id, label, opened_at IS NOT NULL AS is_open FROM receiving_labels WHERE label = $1;

-- name: label_of
-- Read the label of the managed receiving domain of account $1.
SELECT account_id, label, opened_at IS NOT NULL AS is_open FROM receiving_labels WHERE account_id = $1;

-- name: open_label
-- Record that the managed receiving domain of account $1 received its first mail.
UPDATE receiving_labels SET opened_at = now() WHERE account_id = $1;
