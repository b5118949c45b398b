-- name: attempts_made
-- How often recipients of message $1 with the address $2 (lower case) have been tried.
SELECT max(attempts) AS attempts FROM recipients WHERE message_id = $1 AND lower(address) = $2;
