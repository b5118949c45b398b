-- fragment: account_columns
-- The columns of an AccountRow.
a.id, a.name, a.plan, coalesce(a.status_before_move, a.status) AS status, a.parent_id, a.daily_cap, a.monthly_cap,
a.retention_days,
a.agreed_caps, a.created_at

-- name: newest_accounts
-- Return at most $2 accounts, newest first, before account $1 (null: from the newest).
SELECT :account_columns FROM accounts a WHERE ($1::uuid IS NULL OR a.id < $1) ORDER BY a.id DESC LIMIT $2;

-- name: accounts_in_status
-- As newest_accounts, those with status $3 alone.
SELECT :account_columns FROM accounts a WHERE a.status = $3 AND ($1::uuid IS NULL OR a.id < $1) ORDER BY a.id DESC LIMIT $2;

-- name: accounts_of_person
-- As newest_accounts, those that the person with address $3 is a member of.
SELECT :account_columns FROM users u JOIN members m ON m.user_id = u.id JOIN accounts a ON a.id = m.account_id
WHERE u.email = lower($3) AND ($1::uuid IS NULL OR a.id < $1) ORDER BY a.id DESC LIMIT $2;

-- name: accounts_named_like
-- As newest_accounts, those whose name begins with $3, ignoring case (of which letters, is up to the
-- locale of the database), and those with the domain $3. Of more than 10,000 names, the first in the order of names.
SELECT :account_columns FROM accounts a WHERE a.id IN (
    (SELECT n.id FROM accounts n
     WHERE lower(n.name) COLLATE "C" >= lower($3) AND lower(n.name) COLLATE "C" < lower($3) || chr(1114111)
     ORDER BY lower(n.name) COLLATE "C", n.id LIMIT 10000)
    UNION ALL
    SELECT d.account_id FROM domains d WHERE d.name = lower($3) AND d.deleted_at IS NULL
) AND ($1::uuid IS NULL OR a.id < $1) ORDER BY a.id DESC LIMIT $2;
