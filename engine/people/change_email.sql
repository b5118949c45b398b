-- name: set_email
-- Set the address of person $1 to $2, verified at $3, by the link alone if $4.
UPDATE users SET email = $2, email_verified_at = $3, verified_by_link = $4, signed_up_from = NULL WHERE id = $1;
