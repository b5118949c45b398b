-- name: set_email
-- Person $1 is known by address $2 from now on, confirmed at $3.
UPDATE users SET email = $2, email_verified_at = $3 WHERE id = $1;
