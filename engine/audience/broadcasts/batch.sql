-- name: next_recipients
-- Return the next recipients of a broadcast that still wait, in order of their contacts, at most `most`, with what
-- they are now: a contact that was deleted has no email.
SELECT r.contact_id, r.address, c.email, c.name, c.fields, coalesce(c.confirmed, false) AS is_confirmed,
       s.reason AS suppressed, :is_opted_out AS is_opted_out
FROM (SELECT * FROM broadcast_recipients WHERE broadcast_id = :broadcast AND state = 'waiting'
      ORDER BY contact_id LIMIT :most) r
JOIN broadcasts b ON b.id = r.broadcast_id
LEFT JOIN contacts c ON c.id = r.contact_id AND c.account_id = b.account_id
LEFT JOIN suppressions s ON s.account_id = b.account_id AND s.address = r.address
ORDER BY r.contact_id;
