-- name: attempts_made
-- How often recipient $2 of message $1 has been tried, by the address as it stands there.
SELECT max(attempts) AS attempts FROM recipients WHERE message_id = $1 AND address = $2;
