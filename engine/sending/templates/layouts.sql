-- name: read_layout_slug
-- Read name and latest version of layout $2 of account $1, deleted or not.
SELECT slug, name, version, deleted_at FROM layouts WHERE account_id = $1 AND slug = $2;

-- name: read_layout
-- Read layout $2 of account $1 with the content of its latest version.
SELECT l.slug, l.name, l.version, v.html, v.text, v.variables, l.created_at, l.updated_at
FROM layouts l
JOIN layout_versions v ON v.account_id = l.account_id AND v.slug = l.slug AND v.version = l.version
WHERE l.account_id = $1 AND l.slug = $2 AND l.deleted_at IS NULL;

-- name: list_layouts
-- List layouts of account $1, newest first, at most $2, after the one with slug $3 (null: from the newest), which may be
-- a deleted one.
SELECT l.slug, l.name, l.version,
       (SELECT count(*)
        FROM templates t
        JOIN template_versions v ON v.account_id = t.account_id AND v.slug = t.slug AND v.version = t.version
        WHERE t.account_id = l.account_id AND t.deleted_at IS NULL AND v.layout = l.slug) AS templates,
       l.created_at, l.updated_at
FROM layouts l
WHERE l.account_id = $1 AND l.deleted_at IS NULL
  AND ($3::text IS NULL OR (l.created_at, l.slug) < (
      SELECT c.created_at, c.slug FROM layouts c WHERE c.account_id = $1 AND c.slug = $3))
ORDER BY l.created_at DESC, l.slug DESC
LIMIT $2;

-- name: list_layout_users
-- List the ids of the templates of account $1 that use layout $2.
SELECT t.slug
FROM templates t
JOIN template_versions v ON v.account_id = t.account_id AND v.slug = t.slug AND v.version = t.version
WHERE t.account_id = $1 AND t.deleted_at IS NULL AND v.layout = $2
ORDER BY t.slug;

-- name: count_layouts
-- Count the layouts of account $1.
SELECT count(*) AS used FROM layouts WHERE account_id = $1 AND deleted_at IS NULL;

-- name: insert_layout
-- Insert layout $2 of account $1, named $3, at $4; a reused slug continues with its next version.
INSERT INTO layouts AS l (account_id, slug, name, version, created_at, updated_at) VALUES ($1, $2, $3, 1, $4, $4)
ON CONFLICT (account_id, slug) DO UPDATE
SET name = excluded.name, version = l.version + 1, created_at = excluded.created_at, updated_at = excluded.updated_at,
    deleted_at = NULL
WHERE l.deleted_at IS NOT NULL
RETURNING version;

-- name: insert_layout_version
-- Insert version $3 of layout $2 of account $1: HTML $4, text $5, variables $6, published at $7.
INSERT INTO layout_versions (account_id, slug, version, html, text, variables, created_at)
VALUES ($1, $2, $3, $4, $5, $6, $7);

-- name: update_layout
-- Set name $3 and latest version $4 of layout $2 of account $1 at $5.
UPDATE layouts SET name = $3, version = $4, updated_at = $5 WHERE account_id = $1 AND slug = $2;

-- name: publish_users
-- Publish the next version of each template of account $1 that uses layout $2, in its version $3, at $4; return their ids.
WITH used AS (
    UPDATE templates t SET version = t.version + 1, updated_at = $4
    FROM template_versions v
    WHERE t.account_id = $1 AND t.deleted_at IS NULL AND v.layout = $2
      AND v.account_id = t.account_id AND v.slug = t.slug AND v.version = t.version
    RETURNING t.slug, t.version, coalesce(v.content_version, v.version) AS content_version, v.subject
)
INSERT INTO template_versions
    (account_id, slug, version, content_version, subject, layout, layout_version, created_at)
SELECT $1, slug, version, content_version, subject, $2, $3, $4 FROM used
RETURNING slug;

-- name: delete_layout
-- Delete layout $2 of account $1 at $3; its versions stay.
UPDATE layouts SET deleted_at = $3, updated_at = $3 WHERE account_id = $1 AND slug = $2 AND deleted_at IS NULL;
