-- name: insert_requests
-- Insert requests with ids $1 of accounts $2: keys $3, persons $4, methods $5, paths $6, statuses $7, microseconds $8,
-- request ids $9, error types $10, agents $11.
INSERT INTO api_requests (id, account_id, key_id, user_id, method, path, status, microseconds, request_id, error_type, agent)
SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::uuid[], $5::text[], $6::text[], $7::smallint[],
                     $8::integer[], $9::text[], $10::text[], $11::text[]);

-- fragment: shown
-- Columns in the order of RequestRow.
id, key_id, user_id, method, path, status, microseconds, request_id, error_type, agent

-- fragment: wanted
-- Requests of account $1 with $2 <= id < $3 and a status from $5 to $6. Null disables each of the other filters: key $7,
-- method $8, beginning of the path $9, error type $10, by a key (true) or by a person (false) $11, by an agent (true) or not (false) $12.
account_id = $1 AND id >= $2 AND id < $3 AND status >= $5 AND status <= $6
  AND ($7::uuid IS NULL OR key_id = $7)
  AND ($8::text IS NULL OR method = $8)
  AND ($9::text IS NULL OR starts_with(path, $9))
  AND ($10::text IS NULL OR error_type = $10)
  AND ($11::boolean IS NULL OR (key_id IS NOT NULL) = $11)
  AND ($12::boolean IS NULL OR (agent IS NOT NULL) = $12)

-- name: list_requests
-- List requests, newest first, at most $4.
SELECT :shown FROM api_requests WHERE :wanted ORDER BY id DESC LIMIT $4;

-- name: list_failed
-- The same for failed ones, through their own index.
SELECT :shown FROM api_requests WHERE :wanted AND status >= 400 ORDER BY id DESC LIMIT $4;
