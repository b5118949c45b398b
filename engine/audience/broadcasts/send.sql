-- name: keep_list
-- Keep list $2 of account $1 from being deleted until the transaction ends.
SELECT id FROM contact_lists WHERE account_id = $1 AND id = $2 FOR SHARE;
