-- name: fresh_reset
-- Whether person $1 has a link to reset the password that was made after $2.
SELECT 1 FROM single_use_tokens WHERE user_id = $1 AND purpose = 'reset_password' AND created_at > $2;
