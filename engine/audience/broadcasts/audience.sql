-- name: find_list
-- Read how many contacts list $2 of account $1 has.
SELECT contacts FROM contact_lists WHERE account_id = $1 AND id = $2;

-- name: find_segment
-- Read the filter of segment $2 of account $1.
SELECT filter FROM contact_segments WHERE account_id = $1 AND id = $2;
