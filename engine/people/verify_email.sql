-- name: mark_verified
-- Mark the address of person $1 as verified at $2, by the link alone if $3, unless it is; any other proof replaces one by
-- the link alone.
WITH before AS (
    SELECT id, email_verified_at IS NULL AS is_new FROM users WHERE id = $1
)
UPDATE users u SET email_verified_at = coalesce(u.email_verified_at, $2), verified_by_link = $3, signed_up_from = NULL
FROM before WHERE u.id = before.id AND (before.is_new OR (u.verified_by_link AND NOT $3)) RETURNING before.is_new;
