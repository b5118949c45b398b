-- name: owner
-- The owner of account $1.
SELECT user_id FROM members WHERE account_id = $1 AND role = 'owner';

-- name: take_over_messages
-- Give all stored messages of other accounts to account $1.
WITH recipients_moved AS (UPDATE recipients SET account_id = $1 WHERE account_id <> $1)
UPDATE messages SET account_id = $1 WHERE account_id <> $1;

-- name: message_events
-- How many message events account $1 has since $2.
SELECT count(*) AS events FROM events WHERE account_id = $1 AND message_id IS NOT NULL AND occurred_at >= $2;
