-- name: attempts_made
-- Read the number of attempts for the recipient of message $1 that is stored under one of the addresses $2.
SELECT max(attempts) AS attempts FROM recipients WHERE message_id = $1 AND address = ANY ($2::text[]);
