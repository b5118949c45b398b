-- fragment: segment_columns
-- Columns in the order of SegmentRow.
id, name, description, filter, created_at, updated_at

-- name: list_segments
-- List segments of account $1 with ids below $2, newest first, at most $3.
SELECT :segment_columns FROM contact_segments WHERE account_id = $1 AND id < $2 ORDER BY id DESC LIMIT $3;

-- name: read_segment
-- Read segment $2 of account $1.
SELECT :segment_columns FROM contact_segments WHERE account_id = $1 AND id = $2;

-- name: named_segment
-- Return the segment of account $1 whose name without differences of case is $2.
SELECT id FROM contact_segments WHERE account_id = $1 AND name_key = $2;

-- name: insert_segment
-- Insert segment $2 of account $1 with name $3, key $4, description $5 and filter $6 at $7.
INSERT INTO contact_segments (id, account_id, name, name_key, description, filter, created_at, updated_at)
VALUES ($2, $1, $3, $4, $5, $6, $7, $7) RETURNING :segment_columns;

-- name: change_segment
-- Change segment $2 of account $1: name $3, key $4, description $5, filter $6, at $7.
UPDATE contact_segments SET name = $3, name_key = $4, description = $5, filter = $6, updated_at = $7
WHERE account_id = $1 AND id = $2
RETURNING :segment_columns;

-- name: segment_awaited
-- Return whether a broadcast of account $1 that waits to start names segment $2.
SELECT segment_is_awaited($1, $2) AS awaited;

-- name: delete_segment
-- Delete segment $2 of account $1; returns its id if it existed.
DELETE FROM contact_segments WHERE account_id = $1 AND id = $2 RETURNING id;
