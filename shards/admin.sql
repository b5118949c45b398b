-- name: rows_of_domain
-- Number of queue rows of domain $1 in the shards $2.
SELECT count(*) AS rows FROM queue WHERE shard = ANY($2::int[]) AND domain = $1;
