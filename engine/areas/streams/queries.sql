-- name: list_streams
-- Open streams of account $1 by slug.
SELECT slug, name, created_at FROM streams WHERE account_id = $1 AND deleted_at IS NULL ORDER BY slug;

-- name: page_of_streams
-- Open streams of account $1, newest first, at most $2, after the one with slug $3 (null: from the newest). A deleted
-- stream still marks its place.
SELECT slug, name, created_at FROM streams s
WHERE account_id = $1 AND deleted_at IS NULL
  AND ($3::text IS NULL OR (created_at, slug) < (
      SELECT c.created_at, c.slug FROM streams c WHERE c.account_id = $1 AND c.slug = $3))
ORDER BY created_at DESC, slug DESC
LIMIT $2;

-- name: stream_standing
-- Account $1's stream $2, deleted or not.
SELECT slug, deleted_at FROM streams WHERE account_id = $1 AND slug = $2;

-- name: count_streams
-- How many streams account $1 holds, the transactional one included.
SELECT count(*) AS used FROM streams WHERE account_id = $1 AND deleted_at IS NULL;

-- name: insert_stream
-- Account $1's stream $2 named $3, made at $4; a deleted one's slug may be used again.
INSERT INTO streams (account_id, slug, name, created_at) VALUES ($1, $2, $3, $4)
ON CONFLICT (account_id, slug) DO UPDATE
SET name = excluded.name, created_at = excluded.created_at, deleted_at = NULL
WHERE streams.deleted_at IS NOT NULL;

-- name: delete_stream
-- Account $1's stream $2 is deleted at $3.
UPDATE streams SET deleted_at = $3 WHERE account_id = $1 AND slug = $2 AND deleted_at IS NULL;
