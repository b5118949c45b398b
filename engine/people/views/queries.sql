-- fragment: view_columns
-- The columns of a view `v`, joined with its owner `u`.
v.id, v.user_id, coalesce(nullif(u.name, ''), u.email) AS owner_name, v.page, v.name, v.query, v.shared, v.created_at,
v.updated_at

-- name: list_views
-- List the views of account $1 that person $2 may see, on page $3 (null: all): own ones first, then by name.
SELECT :view_columns FROM saved_views v JOIN users u ON u.id = v.user_id
WHERE v.account_id = $1 AND (v.user_id = $2 OR v.shared) AND ($3::text IS NULL OR v.page = $3)
ORDER BY v.user_id <> $2, lower(v.name), v.id;

-- name: read_view
-- Read view $3 of account $1 if person $2 may see it.
SELECT :view_columns FROM saved_views v JOIN users u ON u.id = v.user_id
WHERE v.account_id = $1 AND v.id = $3 AND (v.user_id = $2 OR v.shared);

-- name: insert_view
-- Insert view $1 of person $3 in account $2, unless the person has $8 views there; returns no row then.
INSERT INTO saved_views (id, account_id, user_id, page, name, query, shared, created_at, updated_at)
SELECT $1, $2, $3, $4, $5, $6, $7, $9, $9
WHERE (SELECT count(*) FROM saved_views v WHERE v.account_id = $2 AND v.user_id = $3) < $8
RETURNING id;

-- name: change_view
-- Change view $2 of account $1: name $3, query $4, whether it is shared $5; null keeps a value.
UPDATE saved_views SET name = coalesce($3, name), query = coalesce($4, query), shared = coalesce($5, shared), updated_at = $6
WHERE account_id = $1 AND id = $2;

-- name: delete_view
-- Delete view $2 of account $1.
DELETE FROM saved_views WHERE account_id = $1 AND id = $2;
