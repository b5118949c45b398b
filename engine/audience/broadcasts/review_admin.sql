-- name: review_facts
-- Read what the operator needs to review broadcast $1: the account's age, its figures of 30 days, and its contacts.
SELECT a.name AS account, a.plan, a.created_at AS account_since,
       coalesce((SELECT sum(d.delivered) FROM account_days d WHERE d.account_id = a.id AND d.day > now()::date - 30), 0) AS delivered,
       coalesce((SELECT sum(d.bounced) FROM account_days d WHERE d.account_id = a.id AND d.day > now()::date - 30), 0) AS bounced,
       coalesce((SELECT sum(d.complained) FROM account_days d WHERE d.account_id = a.id AND d.day > now()::date - 30), 0) AS complained
FROM broadcasts b JOIN accounts a ON a.id = b.account_id WHERE b.id = $1;

-- name: consents_of_list
-- Count the consents among the first 10,000 contacts of list $1.
SELECT c.consent, count(*) AS contacts
FROM (SELECT contact_id FROM contact_list_members WHERE list_id = $1 LIMIT 10000) m JOIN contacts c ON c.id = m.contact_id
GROUP BY c.consent ORDER BY c.consent;
