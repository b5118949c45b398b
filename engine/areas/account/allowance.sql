-- name: settled_on
-- How many recipients of account $1 bounced, complained and were settled in all on day $2.
SELECT bounced, complained, delivered + bounced + failed AS settled FROM account_days WHERE account_id = $1 AND day = $2;
