-- name: settled_on
-- How many messages of account $1 bounced, and how many were complained about, on day $2.
SELECT bounced, complained FROM account_days WHERE account_id = $1 AND day = $2;
