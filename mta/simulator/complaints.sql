-- name: delivered_lately
-- Read at most $5 recipients with status `delivered` whose address begins with $3 and ends in $4 (lower case), of
-- messages with ids from $1 up to $2. The ids limit the scan to the last minutes of the newest partition.
SELECT message_id, n AS place FROM recipients
WHERE message_id BETWEEN $1 AND $2 AND status = 'delivered'
  AND starts_with(lower(address), $3) AND right(address, length($4)) = $4
ORDER BY message_id LIMIT $5;
