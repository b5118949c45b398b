-- fragment: content
-- Join to version `v` the version `c` with its content, and the version `l` of its layout.
JOIN template_versions c
    ON c.account_id = v.account_id AND c.slug = v.slug AND c.version = coalesce(v.content_version, v.version)
LEFT JOIN layout_versions l ON l.account_id = v.account_id AND l.slug = v.layout AND l.version = v.layout_version

-- name: load_version
-- Read version $3 (null: the latest) of template $2 of account $1, unless the template is deleted.
SELECT v.slug, v.version, v.subject, c.html, c.text, c.variables, c.blocks, v.layout, v.layout_version,
       l.html AS layout_html, l.text AS layout_text, l.variables AS layout_variables, v.created_at
FROM templates t
JOIN template_versions v ON v.account_id = t.account_id AND v.slug = t.slug AND v.version = coalesce($3::int, t.version)
:content
WHERE t.account_id = $1 AND t.slug = $2 AND t.deleted_at IS NULL;

-- name: load_pinned
-- Read version $3 of template $2 of account $1, even if the template is deleted.
SELECT v.slug, v.version, v.subject, c.html, c.text, c.variables, c.blocks, v.layout, v.layout_version,
       l.html AS layout_html, l.text AS layout_text, l.variables AS layout_variables, v.created_at
FROM template_versions v
:content
WHERE v.account_id = $1 AND v.slug = $2 AND v.version = $3;

-- name: read_template_slug
-- Read name and latest version of template $2 of account $1, deleted or not.
SELECT slug, name, version, deleted_at FROM templates WHERE account_id = $1 AND slug = $2;

-- name: read_template
-- Read template $2 of account $1 with the content of its latest version.
SELECT t.slug, t.name, t.version, v.subject, c.html, c.text, c.variables, c.blocks, v.layout, v.layout_version,
       l.html AS layout_html, l.text AS layout_text, l.variables AS layout_variables, t.created_at, t.updated_at
FROM templates t
JOIN template_versions v ON v.account_id = t.account_id AND v.slug = t.slug AND v.version = t.version
:content
WHERE t.account_id = $1 AND t.slug = $2 AND t.deleted_at IS NULL;

-- name: list_templates
-- List templates of account $1, newest first, at most $2, after the one with slug $3 (null: from the newest), which may
-- be a deleted one; only those with the text $4 (null: all) in slug, name or subject, in any case.
SELECT t.slug, t.name, t.version, v.subject, v.layout, t.created_at, t.updated_at
FROM templates t
JOIN template_versions v ON v.account_id = t.account_id AND v.slug = t.slug AND v.version = t.version
WHERE t.account_id = $1 AND t.deleted_at IS NULL
  AND ($3::text IS NULL OR (t.created_at, t.slug) < (
      SELECT c.created_at, c.slug FROM templates c WHERE c.account_id = $1 AND c.slug = $3))
  AND ($4::text IS NULL OR strpos(lower(concat_ws(E'\n', t.slug, t.name, v.subject)), lower($4)) > 0)
ORDER BY t.created_at DESC, t.slug DESC
LIMIT $2;

-- name: list_versions
-- List versions of template $2 of account $1 below version $3, newest first, at most $4. Stops after $5 bytes of content,
-- but returns at least one. octet_length does not read the texts.
SELECT slug, version, subject, html, text, variables, blocks, layout, layout_version, created_at
FROM (
    SELECT p.*, row_number() OVER w > 1 AND sum(p.bytes) OVER w > $5 AS too_much
    FROM (
        SELECT v.slug, v.version, v.subject, c.html, c.text, c.variables, c.blocks, v.layout, v.layout_version, v.created_at,
               coalesce(octet_length(c.html), 0)::bigint + coalesce(octet_length(c.text), 0)
                   + octet_length(c.variables::text) + coalesce(octet_length(c.blocks::text), 0) AS bytes
        FROM template_versions v
        JOIN template_versions c
            ON c.account_id = v.account_id AND c.slug = v.slug AND c.version = coalesce(v.content_version, v.version)
        WHERE v.account_id = $1 AND v.slug = $2 AND v.version < $3
        ORDER BY v.version DESC
        LIMIT $4
    ) p
    WINDOW w AS (ORDER BY p.version DESC)
) q
WHERE NOT too_much
ORDER BY version DESC;

-- name: count_templates
-- Count the templates of account $1.
SELECT count(*) AS used FROM templates WHERE account_id = $1 AND deleted_at IS NULL;

-- name: insert_template
-- Insert template $2 of account $1, named $3, at $4; a reused slug continues with its next version.
INSERT INTO templates AS t (account_id, slug, name, version, created_at, updated_at) VALUES ($1, $2, $3, 1, $4, $4)
ON CONFLICT (account_id, slug) DO UPDATE
SET name = excluded.name, version = t.version + 1, created_at = excluded.created_at, updated_at = excluded.updated_at,
    deleted_at = NULL
WHERE t.deleted_at IS NOT NULL
RETURNING version;

-- name: insert_version
-- Insert version $3 of template $2 of account $1: subject $4, HTML $5, text $6, variables $7, in version $9 of layout $8
-- (both null: none), published at $10, made of the blocks $11 (null: by hand).
INSERT INTO template_versions
    (account_id, slug, version, subject, html, text, variables, layout, layout_version, created_at, blocks)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11);

-- name: update_template
-- Set name $3 and latest version $4 of template $2 of account $1 at $5.
UPDATE templates SET name = $3, version = $4, updated_at = $5 WHERE account_id = $1 AND slug = $2;

-- name: delete_template
-- Delete template $2 of account $1 at $3; its versions stay.
UPDATE templates SET deleted_at = $3, updated_at = $3 WHERE account_id = $1 AND slug = $2 AND deleted_at IS NULL;
