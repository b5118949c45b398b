-- fragment: list_columns
-- Columns in the order of ContactListRow.
id, name, description, contacts, created_at, updated_at

-- name: list_lists
-- List contact lists of account $1 with ids below $2, newest first, at most $3.
SELECT :list_columns FROM contact_lists WHERE account_id = $1 AND id < $2 ORDER BY id DESC LIMIT $3;

-- name: read_list
-- Read list $2 of account $1.
SELECT :list_columns FROM contact_lists WHERE account_id = $1 AND id = $2;

-- name: lock_list
-- Lock and read list $2 of account $1. A broadcast that comes to wait for its start locks the list too.
SELECT :list_columns FROM contact_lists WHERE account_id = $1 AND id = $2 FOR UPDATE;

-- name: known_lists
-- Return those of the lists $2 that account $1 has.
SELECT id FROM contact_lists WHERE account_id = $1 AND id = ANY ($2::uuid[]);

-- name: named_list
-- Return the list of account $1 whose name without differences of case is $2.
SELECT id FROM contact_lists WHERE account_id = $1 AND name_key = $2;

-- name: insert_list
-- Insert list $2 of account $1 with name $3, key $4 and description $5 at $6.
INSERT INTO contact_lists (id, account_id, name, name_key, description, created_at, updated_at)
VALUES ($2, $1, $3, $4, $5, $6, $6) RETURNING :list_columns;

-- name: change_list
-- Change list $2 of account $1: name $3, key $4, description $5, at $6.
UPDATE contact_lists SET name = $3, name_key = $4, description = $5, updated_at = $6 WHERE account_id = $1 AND id = $2
RETURNING :list_columns;

-- name: list_awaited
-- Return whether a broadcast of account $1 that waits to start names list $2.
SELECT list_is_awaited($1, $2) AS awaited;

-- name: delete_list
-- Delete list $2 of account $1 with its memberships.
WITH member AS (
    DELETE FROM contact_list_members WHERE list_id = $2 AND account_id = $1
)
DELETE FROM contact_lists WHERE account_id = $1 AND id = $2;

-- name: add_members
-- Add contacts $3, which exist, to lists $2 of account $1 at $4, and keep the counts; returns the added pairs.
WITH added AS (
    INSERT INTO contact_list_members (list_id, contact_id, account_id, added_at)
    SELECT list.id, contact.id, $1, $4 FROM unnest($2::uuid[]) AS list (id), unnest($3::uuid[]) AS contact (id)
    ON CONFLICT DO NOTHING RETURNING list_id, contact_id
), counted AS (
    UPDATE contact_lists l SET contacts = l.contacts + n.added
    FROM (SELECT list_id, count(*)::integer AS added FROM added GROUP BY list_id) n WHERE l.id = n.list_id
)
SELECT list_id, contact_id FROM added;

-- name: known_contacts
-- Return those of the contacts $2 that account $1 has.
SELECT id FROM contacts WHERE id = ANY ($2::uuid[]) AND account_id = $1;

-- name: remove_member
-- Remove contact $3 from list $2 of account $1, and keep the count; returns it if it was a member.
WITH removed AS (
    DELETE FROM contact_list_members WHERE list_id = $2 AND contact_id = $3 AND account_id = $1 RETURNING contact_id
), counted AS (
    UPDATE contact_lists SET contacts = contacts - 1 WHERE id = $2 AND EXISTS (SELECT 1 FROM removed)
)
SELECT contact_id FROM removed;
