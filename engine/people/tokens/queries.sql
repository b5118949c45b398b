-- name: is_token_stored
-- Whether the token with digest $1 is stored, or invites somebody to a team.
SELECT EXISTS (SELECT FROM single_use_tokens WHERE digest = $1) OR EXISTS (SELECT FROM invites WHERE digest = $1) AS stored;

-- name: issue_token
-- Insert the token with digest $1 for purpose $2 of user $3 with detail $4, at $5, valid until $6; deletes earlier ones.
WITH burnt AS (
    DELETE FROM single_use_tokens WHERE user_id = $3 AND purpose = $2
)
INSERT INTO single_use_tokens (digest, purpose, user_id, detail, created_at, expires_at) VALUES ($1, $2, $3, $4, $5, $6);

-- name: holder_of_token
-- Find the person and the detail of the token with digest $1 for purpose $2, valid at $3.
SELECT user_id, detail FROM single_use_tokens WHERE digest = $1 AND purpose = $2 AND expires_at > $3;

-- name: burn_token
-- Consume the token with digest $1 for purpose $2 at $3.
DELETE FROM single_use_tokens WHERE digest = $1 AND purpose = $2 AND expires_at > $3 RETURNING user_id, detail;

-- name: burn_tokens_of
-- Delete every token of user $1 for the purposes $2.
DELETE FROM single_use_tokens WHERE user_id = $1 AND purpose = ANY ($2::text[]);

-- name: forget_tokens
-- Delete up to $2 tokens that expired before $1.
DELETE FROM single_use_tokens WHERE digest IN (SELECT digest FROM single_use_tokens WHERE expires_at < $1 LIMIT $2);
