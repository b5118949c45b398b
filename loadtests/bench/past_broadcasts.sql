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

-- name: store_past
-- Store ended broadcasts $2 of account $1, each to a list of its own (ids $3) of all $4 contacts of the account.
WITH past AS (
    SELECT * FROM unnest($2::uuid[], $3::uuid[]) AS n (broadcast_id, list_id)
), list AS (
    INSERT INTO contact_lists (id, account_id, name, name_key, contacts, created_at, updated_at)
    SELECT list_id, $1, 'Past ' || list_id, 'past ' || list_id, $4, now(), now() FROM past
), member AS (
    INSERT INTO contact_list_members (list_id, contact_id, account_id, added_at)
    SELECT p.list_id, c.id, $1, now() FROM past p CROSS JOIN contacts c WHERE c.account_id = $1
), broadcast AS (
    INSERT INTO broadcasts (id, account_id, name, list_id, stream, sender, from_domain, subject, text, status, started_at,
                            finished_at, created_at, updated_at)
    SELECT broadcast_id, $1, 'Past', list_id, 'announcements', $5, split_part($5, '@', 2), 'Past', 'Past', 'sent',
           now() - interval '20 days', now() - interval '19 days', now() - interval '20 days', now() - interval '19 days'
    FROM past
), progress AS (
    INSERT INTO broadcast_progress (broadcast_id, recipients, accepted) SELECT broadcast_id, $4, $4 FROM past
), outcome AS (
    INSERT INTO broadcast_outcomes (broadcast_id, delivered) SELECT broadcast_id, $4 FROM past
)
INSERT INTO broadcast_recipients (broadcast_id, contact_id, address, state, message_id, outcome)
SELECT p.broadcast_id, c.id, c.address, 'accepted', gen_random_uuid(), 'delivered'
FROM past p CROSS JOIN contacts c WHERE c.account_id = $1;

-- name: store_past_links
-- Store an unsubscribe link for each recipient of the ended broadcasts of account $1.
INSERT INTO unsubscribe_links (id, account_id, address, broadcast_id, list_id, created_at)
SELECT gen_random_uuid(), b.account_id, r.address, b.id, b.list_id, b.started_at
FROM broadcasts b JOIN broadcast_recipients r ON r.broadcast_id = b.id WHERE b.account_id = $1;

-- name: store_past_suppressions
-- Suppress each tenth contact of account $1, as bounces do.
INSERT INTO suppressions (account_id, address, reason, created_at)
SELECT $1, address, 'bounce', now() - interval '18 days'
FROM (SELECT address, row_number() OVER (ORDER BY id) AS place FROM contacts WHERE account_id = $1) c
WHERE place % 10 = 0;

-- name: store_past_verifications
-- Store $2 verifications of account $1 from sender $3 that were approved an hour ago, with their destinations.
WITH past AS (
    INSERT INTO verifications (id, account_id, destination, code, status, attempts_left, code_length, codes_sent,
                               message_id, sender, stream, tags, metadata, locale, has_link, created_at, expires_at,
                               finished_at, announced, due_at)
    SELECT gen_random_uuid(), $1, sha256(n::text::bytea), '\x00', 'approved', 4, 6, 1, gen_random_uuid(), $3,
           'transactional', '[]', '{}', 'en', false, now() - interval '70 minutes', now() - interval '60 minutes',
           now() - interval '65 minutes', true, now() + interval '47 hours'
    FROM generate_series(1, $2::int) AS n
    RETURNING account_id, destination
)
INSERT INTO verification_destinations (account_id, destination, sent_at, forget_at)
SELECT account_id, destination, ARRAY[now() - interval '50 minutes'], now() + interval '10 minutes' FROM past;
