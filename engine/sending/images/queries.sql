-- fragment: image_columns
-- The columns of an image without its bytes.
i.id, i.sha256, i.filename, i.content_type, i.width, i.height, i.size_bytes, i.created_at

-- name: list_images
-- List images of account $1 with ids below $2 (null: from the newest), newest first, at most $3.
SELECT :image_columns FROM images i
WHERE i.account_id = $1 AND ($2::uuid IS NULL OR i.id < $2)
ORDER BY i.id DESC LIMIT $3;

-- name: read_image
-- Read image $2 of account $1.
SELECT :image_columns FROM images i WHERE i.account_id = $1 AND i.id = $2;

-- name: read_same_image
-- Read the image of account $1 with the content $2.
SELECT :image_columns FROM images i WHERE i.account_id = $1 AND i.sha256 = $2;

-- name: read_images
-- Read the images $2 of account $1, as far as they exist.
SELECT :image_columns FROM images i WHERE i.account_id = $1 AND i.id = ANY ($2::uuid[]);

-- name: load_files
-- Read the images $2 of account $1 with their bytes, as far as they exist.
SELECT id, filename, content_type, content FROM images WHERE account_id = $1 AND id = ANY ($2::uuid[]);

-- name: serve_image
-- Read the bytes of the image with content $1, of whichever account: its address is public.
SELECT content_type, content FROM images WHERE sha256 = $1 LIMIT 1;

-- name: count_images
-- Count the images of account $1 and their bytes.
SELECT count(*) AS images, coalesce(sum(size_bytes), 0)::bigint AS total_bytes FROM images WHERE account_id = $1;

-- name: insert_image
-- Insert an image.
INSERT INTO images (account_id, id, sha256, filename, content_type, width, height, size_bytes, content, created_at)
VALUES (:account, :id, :sha256, :filename, :content_type, :width, :height, :size_bytes, :content, :created_at);

-- name: list_image_uses
-- List at most $3 templates, by their latest version, and broadcasts that have not ended, of account $1 that show the
-- image with the public id $2. Looking for the id as text first keeps most documents from being parsed.
SELECT 'template' AS kind, t.slug AS id
FROM templates t
JOIN template_versions c ON c.account_id = t.account_id AND c.slug = t.slug AND c.version = t.version
WHERE t.account_id = $1 AND t.deleted_at IS NULL
  AND CASE WHEN strpos(c.blocks::text, $2) > 0 THEN
          c.blocks -> 'theme' ->> 'logo' = $2
          OR jsonb_path_exists(c.blocks::jsonb, '$.**.image ? (@ == $name)', jsonb_build_object('name', $2::text))
      END
UNION ALL
SELECT 'broadcast', b.name
FROM broadcasts b
WHERE b.account_id = $1 AND b.status NOT IN ('sent', 'stopped', 'canceled')
  AND CASE WHEN strpos(b.blocks::text, $2) > 0 THEN
          b.blocks -> 'theme' ->> 'logo' = $2
          OR jsonb_path_exists(b.blocks::jsonb, '$.**.image ? (@ == $name)', jsonb_build_object('name', $2::text))
      END
LIMIT $3;

-- name: delete_image
-- Delete image $2 of account $1.
DELETE FROM images WHERE account_id = $1 AND id = $2;
