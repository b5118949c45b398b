-- name: fresh_reset
-- Return a row if person $1 has a password link created after $2.
SELECT 1 FROM single_use_tokens WHERE user_id = $1 AND purpose = 'reset_password' AND created_at > $2;
