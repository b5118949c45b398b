-- fragment: erasure_columns
-- Columns of `erasures` in the order of ErasureRow.
id, account_id, address, state, counts::text AS counts, log_seq, requested_at, started_at, finished_at

-- name: request_erasure
-- Record the erasure $1 of account $2 of the canonical address $3, requested at $4.
INSERT INTO erasures (id, account_id, address, requested_at) VALUES ($1, $2, $3, $4)
RETURNING :erasure_columns;

-- name: open_of_address
-- Read the erasure of address $2 of account $1 that is not completed.
SELECT :erasure_columns FROM erasures WHERE account_id = $1 AND address = $2;

-- name: count_open
-- Count the erasures of account $1 that are not completed.
SELECT count(*) AS erasures FROM erasures WHERE account_id = $1 AND address IS NOT NULL;

-- name: read_erasure
-- Read erasure $2 of account $1.
SELECT :erasure_columns FROM erasures WHERE account_id = $1 AND id = $2;

-- name: list_erasures
-- List the erasures of account $1 with ids below $2, newest first, at most $3.
SELECT :erasure_columns FROM erasures WHERE account_id = $1 AND id < $2 ORDER BY id DESC LIMIT $3;

-- name: open_erasures
-- List erasures that are not completed, oldest first, at most $1: one of each account, none of an account that closes.
SELECT DISTINCT ON (e.account_id) :erasure_columns FROM (
    SELECT e.* FROM erasures e JOIN accounts a ON a.id = e.account_id AND a.status NOT IN ('closing', 'moving')
    WHERE e.state <> 'completed' ORDER BY e.id LIMIT $1) e
ORDER BY e.account_id, e.id;

-- name: start_erasure
-- Mark erasure $1 as running since $2, unless it runs already.
UPDATE erasures SET state = 'running', started_at = $2 WHERE id = $1 AND state = 'queued';

-- name: add_erased
-- Add $3 to the count of kind $2 of erasure $1.
UPDATE erasures SET counts = counts || jsonb_build_object($2::text, coalesce((counts ->> $2::text)::bigint, 0) + $3::bigint)
WHERE id = $1;

-- name: name_entries
-- Note that the log is erased up to seq $2 for erasure $1, and that the event with seq $3 names the entries.
UPDATE erasures SET log_seq = $2, named_in = named_in || $3::bigint WHERE id = $1;

-- name: complete_erasure
-- Complete erasure $1 at $2 and forget its address.
UPDATE erasures SET state = 'completed', finished_at = $2, address = NULL WHERE id = $1 AND state = 'running';
