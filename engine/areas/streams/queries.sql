-- name: list_streams
-- Streams of account $1 by slug.
SELECT slug, name, created_at FROM streams WHERE account_id = $1 ORDER BY slug;
