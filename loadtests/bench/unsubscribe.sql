-- name: store_links
-- Store one link for each of the ids $2 of account $1, each to an address of its own.
INSERT INTO unsubscribe_links (id, account_id, address, created_at)
SELECT id, $1, 'person-' || id || '@people.test', now() FROM unnest($2::uuid[]) AS n (id);

-- name: opted_out
-- How many addresses of account $1 are suppressed, and how many events say so.
SELECT (SELECT count(*) FROM suppressions WHERE account_id = $1 AND reason = 'unsubscribe') AS suppressed,
       (SELECT count(*) FROM events WHERE account_id = $1 AND type = 'suppression.added') AS events;
