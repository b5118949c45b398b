-- name: cell_figures
-- Count accounts and pending deliveries, and return the earliest due time.
SELECT (SELECT count(*) FROM accounts) AS accounts, (SELECT count(*) FROM queue) AS queued,
       (SELECT min(due_at) FROM queue) AS oldest_due;
