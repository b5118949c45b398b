-- name: mark_verified
-- Mark the address of person $1 as verified at $2, unless it already is.
UPDATE users SET email_verified_at = $2 WHERE id = $1 AND email_verified_at IS NULL RETURNING id;
