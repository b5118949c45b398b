-- name: own_messages
-- Return those of messages $2 that account $1 has; $3 and $4 bound their ids, to prune partitions.
SELECT id FROM messages WHERE account_id = $1 AND id = ANY($2::uuid[]) AND id BETWEEN $3 AND $4;
