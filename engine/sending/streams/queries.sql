-- name: list_streams
-- List the streams of account $1 by slug.
SELECT slug, name, content_hours, created_at FROM streams WHERE account_id = $1 AND deleted_at IS NULL ORDER BY slug;

-- name: page_of_streams
-- List streams of account $1 with slugs $4 (null: all), newest first, at most $2, after the one with slug $3 (null: from the
-- newest), which may be a deleted one.
SELECT slug, name, content_hours, created_at FROM streams s
WHERE account_id = $1 AND deleted_at IS NULL
  AND ($3::text IS NULL OR (created_at, slug) < (
      SELECT c.created_at, c.slug FROM streams c WHERE c.account_id = $1 AND c.slug = $3))
  AND ($4::text[] IS NULL OR slug = ANY ($4))
ORDER BY created_at DESC, slug DESC
LIMIT $2;

-- name: read_stream
-- Read stream $2 of account $1.
SELECT slug, name, content_hours, created_at FROM streams WHERE account_id = $1 AND slug = $2 AND deleted_at IS NULL;

-- name: set_content_hours
-- Set the hours of content of stream $2 of account $1 to $3.
UPDATE streams SET content_hours = $3 WHERE account_id = $1 AND slug = $2 AND deleted_at IS NULL;

-- name: read_stream_slug
-- Read stream $2 of account $1, deleted or not.
SELECT slug, deleted_at FROM streams WHERE account_id = $1 AND slug = $2;

-- name: count_streams
-- Count the streams of account $1, including the transactional one.
SELECT count(*) AS used FROM streams WHERE account_id = $1 AND deleted_at IS NULL;

-- name: insert_stream
-- Create stream $2 of account $1, named $3, with hours of content $4, at $5; reuses the slug of a deleted stream.
INSERT INTO streams (account_id, slug, name, content_hours, created_at) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (account_id, slug) DO UPDATE
SET name = excluded.name, content_hours = excluded.content_hours, created_at = excluded.created_at, deleted_at = NULL
WHERE streams.deleted_at IS NOT NULL;

-- name: delete_stream
-- Delete stream $2 of account $1 at $3.
UPDATE streams SET deleted_at = $3 WHERE account_id = $1 AND slug = $2 AND deleted_at IS NULL;
