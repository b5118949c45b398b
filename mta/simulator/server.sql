-- name: attempts_made
-- Read the number of attempts for recipient $2 (the address as stored) of message $1.
SELECT max(attempts) AS attempts FROM recipients WHERE message_id = $1 AND address = $2;
