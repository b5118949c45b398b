-- name: accounts
-- At most $2 accounts of this cell after $1, by id.
SELECT id FROM accounts WHERE id > $1 ORDER BY id LIMIT $2;

-- name: existing_accounts
-- The accounts among $1 that this cell has.
SELECT id FROM accounts WHERE id = ANY ($1::uuid[]);

-- name: emails
-- At most $2 people after address $1, by address.
SELECT 'email' AS kind, email AS name, $3::text AS cell, id AS holder FROM users WHERE email > $1 ORDER BY email LIMIT $2;

-- name: domains
-- At most $2 verified domains after name $1, by name.
SELECT 'domain' AS kind, name, $3::text AS cell, account_id AS holder
FROM domains WHERE status = 'verified' AND name > $1 ORDER BY name LIMIT $2;

-- name: identities
-- At most $2 identities after the one with name $1 in claims, by issuer and subject.
SELECT 'identity' AS kind, issuer || ' ' || subject AS name, $3::text AS cell, user_id AS holder
FROM identities WHERE (issuer, subject) > (split_part($1, ' ', 1), substr($1, length(split_part($1, ' ', 1)) + 2))
ORDER BY issuer, subject LIMIT $2;

-- name: standing
-- The claims among kinds $1 and names $2 that this cell has a row for.
SELECT c.kind, c.name FROM unnest($1::text[], $2::text[]) AS c (kind, name)
WHERE (c.kind = 'email' AND EXISTS (SELECT FROM users u WHERE u.email = c.name))
   OR (c.kind = 'domain' AND EXISTS (SELECT FROM domains d WHERE d.name = c.name AND d.status = 'verified'))
   OR (c.kind = 'identity' AND EXISTS (SELECT FROM identities i WHERE i.issuer = split_part(c.name, ' ', 1)
                                       AND i.subject = substr(c.name, length(split_part(c.name, ' ', 1)) + 2)));
