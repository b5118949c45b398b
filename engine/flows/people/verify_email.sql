-- name: mark_verified
-- The address of person $1 is confirmed at $2, unless it was before.
UPDATE users SET email_verified_at = $2 WHERE id = $1 AND email_verified_at IS NULL RETURNING id;
