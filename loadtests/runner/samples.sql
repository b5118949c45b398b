-- name: sample_queue
-- Pending deliveries, how many were never tried, how many are not to domains $1, the age of the oldest in seconds (the
-- first 48 bits of a UUIDv7 are Unix milliseconds), and pending webhook posts.
SELECT count(*) AS depth,
       count(*) FILTER (WHERE attempts = 0) AS never_tried,
       count(*) FILTER (WHERE domain <> ALL ($1::text[])) AS healthy,
       extract(epoch FROM clock_timestamp())::float8
           - ('x' || left(translate(min(message_id::text), '-', ''), 12))::bit(48)::bigint / 1000.0::float8 AS oldest_s,
       (SELECT count(*) FROM webhook_queue) AS hooks
FROM queue;
