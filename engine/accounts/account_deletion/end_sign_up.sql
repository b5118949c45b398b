-- name: delete_person
-- Delete person $1, who belongs to no account.
DELETE FROM users WHERE id = $1;
