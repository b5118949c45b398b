-- name: make_messages
-- Insert messages $1 of accounts $2, to which the events belong.
INSERT INTO messages (id, account_id, status, source, sender, from_domain, subject, stream, tags, recipient_count, size_bytes)
SELECT id, account_id, 'sending', 'api', 'Shop <shop@bench.test>', 'bench.test', 'Your order is on its way', 'transactional',
       '["orders"]', 1, 2048
FROM unnest($1::uuid[], $2::uuid[]) AS n (id, account_id);

-- name: make_recipients
-- Insert one recipient for each of these messages.
INSERT INTO recipients (message_id, n, account_id, kind, address, name, status)
SELECT id, 0, account_id, 'to', 'ann@people.test', 'Ann', 'sending' FROM unnest($1::uuid[], $2::uuid[]) AS n (id, account_id);
