-- fragment: contacts_of_page
-- The contacts of the expression `page`, newest first. Each is looked up by its id, however many rows the planner expects.
SELECT :contact_columns FROM page CROSS JOIN LATERAL (SELECT * FROM contacts WHERE id = page.id OFFSET 0) c
ORDER BY c.id DESC

-- fragment: contact_columns
-- Columns of contact `c` in the order of ContactRow.
c.id, c.address, c.email, c.name, c.fields, c.consent, c.consent_at, c.consent_by, c.confirmed, c.created_at, c.updated_at,
ARRAY(SELECT m.list_id FROM contact_list_members m WHERE m.contact_id = c.id ORDER BY m.list_id) AS lists,
(SELECT s.reason FROM suppressions s WHERE s.account_id = c.account_id AND s.address = c.address) AS suppression_reason,
ARRAY(SELECT o.list_id FROM topic_opt_outs o WHERE o.account_id = c.account_id AND o.address = c.address
      ORDER BY o.list_id) AS opted_out_of

-- fragment: in_list
-- Whether contact `c` is a member of list $5 (null: of any or none).
($5::uuid IS NULL OR EXISTS (SELECT 1 FROM contact_list_members m WHERE m.list_id = $5 AND m.contact_id = c.id))

-- name: lock_totals
-- Lock and return the kept counts of account $1, with its plan.
SELECT t.contacts, t.lists, t.segments, a.plan FROM contact_totals t JOIN accounts a ON a.id = t.account_id
WHERE t.account_id = $1 FOR NO KEY UPDATE OF t;

-- name: start_totals
-- Start the kept counts of account $1.
INSERT INTO contact_totals (account_id) SELECT id FROM accounts WHERE id = $1 ON CONFLICT DO NOTHING;

-- name: add_to_totals
-- Add to the kept counts of account $1: contacts $2, lists $3, segments $4.
UPDATE contact_totals SET contacts = contacts + $2, lists = lists + $3, segments = segments + $4 WHERE account_id = $1;

-- name: list_contacts
-- List contacts of account $1 with ids below $2, newest first, at most $3 (decision 0086).
SELECT :contact_columns FROM contacts c WHERE c.account_id = ANY (ARRAY[$1::uuid]) AND c.id < $2
ORDER BY c.account_id DESC, c.id DESC LIMIT $3;

-- name: list_contact_with_address
-- Read the contact of account $1 with the canonical address $4, if its id is below $2 and its text is like $6 (null: any).
SELECT :contact_columns FROM contacts c
WHERE c.account_id = $1 AND c.address = $4 AND c.id < $2 AND :in_list AND ($6::text IS NULL OR c.search LIKE $6) LIMIT $3;

-- name: list_members
-- List the members of list $4 of account $1 with ids below $2, newest contacts first, at most $3.
WITH page AS MATERIALIZED (
    SELECT contact_id AS id FROM contact_list_members WHERE list_id = $4 AND account_id = $1 AND contact_id < $2
    ORDER BY contact_id DESC LIMIT $3
)
:contacts_of_page;

-- name: search_newest
-- Search the newest $6 contacts of account $1 with ids below $2 for the pattern $4, newest first, at most $3: finds
-- frequent texts at once (decision 0086).
WITH page AS MATERIALIZED (
    SELECT c.id FROM (SELECT * FROM contacts WHERE account_id = ANY (ARRAY[$1::uuid]) AND id < $2
                      ORDER BY account_id DESC, id DESC LIMIT $6) c
    WHERE c.search LIKE $4 AND :in_list ORDER BY c.id DESC LIMIT $3
)
:contacts_of_page;

-- name: search_indexed
-- Search all contacts of account $1 with ids below $2 for the pattern $4, which has the trigrams $6. The comparison of the
-- account can't use an index: the trigrams, which cover the account, find fewer rows than its index in a large account.
WITH hits AS MATERIALIZED (
    SELECT c.id FROM contacts c
    WHERE c.account_id IS NOT DISTINCT FROM $1 AND c.trigrams @> $6::integer[] AND c.id < $2 AND c.search LIKE $4 AND :in_list
), page AS MATERIALIZED (
    SELECT id FROM hits ORDER BY id DESC LIMIT $3
)
:contacts_of_page;

-- name: read_contact
-- Read contact $2 of account $1.
SELECT :contact_columns FROM contacts c WHERE c.account_id = $1 AND c.id = $2;

-- name: find_contacts
-- Find the contacts of account $1 with the canonical addresses $2.
SELECT c.id, c.address, c.name, c.fields, c.consent
FROM unnest($2::text[]) AS wanted (address)
CROSS JOIN LATERAL (SELECT * FROM contacts WHERE account_id = $1 AND address = wanted.address OFFSET 0) c;

-- name: insert_contacts
-- Insert contacts of account $1: ids $2, addresses $3, emails $4, names $5, fields $6, texts to search $7, trigrams $8,
-- times $9; consent $10 recorded by $11; confirmed $12.
INSERT INTO contacts (id, account_id, address, email, name, fields, consent, consent_at, consent_by, confirmed, search,
                      trigrams, created_at, updated_at)
SELECT n.id, $1, n.address, n.email, n.name, n.fields::jsonb, $10, n.at, $11, $12, n.search, n.trigrams::integer[], n.at, n.at
FROM unnest($2::uuid[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::timestamptz[])
     AS n (id, address, email, name, fields, search, trigrams, at);

-- name: change_contacts
-- Change contacts $2 of account $1: names $3, fields $4, consents $5, texts to search $6 and trigrams $7 (null: as they
-- are), at $8 by $9.
UPDATE contacts c
SET name = n.name, fields = n.fields::jsonb, consent = n.consent, search = coalesce(n.search, c.search),
    trigrams = coalesce(n.trigrams::integer[], c.trigrams), updated_at = $8,
    consent_at = CASE WHEN c.consent = n.consent THEN c.consent_at ELSE $8 END,
    consent_by = CASE WHEN c.consent = n.consent THEN c.consent_by ELSE $9 END
FROM unnest($2::uuid[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[])
     AS n (id, name, fields, consent, search, trigrams)
WHERE c.id = n.id AND c.account_id = $1 AND c.id = ANY ($2::uuid[]);

-- name: delete_contact
-- Delete contact $2 of account $1 with its memberships; returns its id if it existed.
WITH gone AS (
    DELETE FROM contacts WHERE account_id = $1 AND id = $2 RETURNING id
), confirmation AS (
    DELETE FROM contact_confirmations WHERE contact_id IN (SELECT id FROM gone)
), member AS (
    DELETE FROM contact_list_members WHERE contact_id IN (SELECT id FROM gone) RETURNING list_id
), counted AS (
    UPDATE contact_lists SET contacts = contacts - 1 WHERE id IN (SELECT list_id FROM member)
)
SELECT id FROM gone;

-- name: count_suppressed
-- Count the suppressed ones of the canonical addresses $2 for account $1.
SELECT count(*) AS suppressed
FROM unnest($2::text[]) AS n (address)
WHERE EXISTS (SELECT 1 FROM suppressions s WHERE s.account_id = $1 AND s.address = n.address OFFSET 0);

-- name: field_columns
-- List the fields of the contacts of account $1 by name, at most $2, with their type; `string` where types differ.
SELECT f.key AS name, CASE WHEN count(DISTINCT jsonb_typeof(f.value)) = 1 THEN min(jsonb_typeof(f.value)) ELSE 'string' END AS type
FROM contacts c CROSS JOIN LATERAL jsonb_each(c.fields) f WHERE c.account_id = $1 GROUP BY f.key ORDER BY f.key LIMIT $2;
