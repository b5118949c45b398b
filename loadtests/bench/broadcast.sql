-- name: store_list
-- Store list $2 of account $1 with $3 contacts, and what a large broadcast of the account needs: a stream and a review.
WITH list AS (
    INSERT INTO contact_lists (id, account_id, name, name_key, contacts, created_at, updated_at)
    VALUES ($2, $1, 'Bench', 'bench', $3, now(), now())
), stream AS (
    INSERT INTO streams (account_id, slug, name, created_at) VALUES ($1, 'announcements', 'Announcements', now())
)
INSERT INTO broadcast_reviews (account_id, approved_at) VALUES ($1, now());

-- name: store_contacts
-- Store contacts $2 with addresses $3 on list $4 of account $1.
WITH stored AS (
    INSERT INTO contacts (id, account_id, address, email, name, fields, consent, consent_at, consent_by, search, trigrams,
                          created_at, updated_at)
    SELECT n.id, $1, n.address, n.address, 'Ann Lee', '{"plan": "pro", "seats": 5}', 'customer', now(), 'bench', n.address,
           '{}', now(), now()
    FROM unnest($2::uuid[], $3::text[]) AS n (id, address)
    RETURNING id
)
INSERT INTO contact_list_members (list_id, contact_id, account_id, added_at) SELECT $4, id, $1, now() FROM stored;

-- name: delivery_seconds
-- Return the seconds from acceptance to delivery of the messages of account $1 that the API accepted after $2, in order,
-- and how many of them are not delivered yet.
SELECT coalesce(array_agg(s.seconds ORDER BY s.seconds) FILTER (WHERE s.seconds IS NOT NULL), '{}') AS seconds,
       count(*) FILTER (WHERE s.seconds IS NULL) AS waiting
FROM (SELECT extract(epoch FROM m.delivered_at)::float8 - uuid7_ms(m.id) / 1000.0 AS seconds FROM messages m
      WHERE m.account_id = $1 AND m.id > $2 AND m.source = 'api') s;

-- name: copies
-- Return how many messages broadcast $1 has, for how many addresses, and how many of them are delivered.
SELECT count(*) AS messages, count(DISTINCT r.address) AS addresses, count(*) FILTER (WHERE r.status = 'delivered') AS delivered
FROM broadcast_recipients b JOIN recipients r ON r.message_id = b.message_id WHERE b.broadcast_id = $1;
