-- name: set_email
-- Set the address of person $1 to $2, verified at $3.
UPDATE users SET email = $2, email_verified_at = $3 WHERE id = $1;
