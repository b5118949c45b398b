-- name: store_received
-- Messages number $1 to $2 of account $3 from $4 to $5 (Unix milliseconds), over the addresses $6 of the domain $7: every
-- fifth is unread, one of 33 is spam, and 2,000 senders take turns. $8 makes the ids differ.
WITH past AS MATERIALIZED (
    SELECT number, to_timestamp(at_ms / 1000.0) AS at,
           (lpad(to_hex(at_ms), 12, '0') || '7' || substr(digest, 1, 3) || '8' || substr(digest, 4, 15))::uuid AS id,
           (lpad(to_hex(at_ms), 12, '0') || '7' || substr(digest, 5, 3) || '8' || substr(digest, 9, 15))::uuid AS raw_id,
           'news' || number % cardinality($6::uuid[]) || '@' || $7 AS address,
           ($6::uuid[])[1 + number % cardinality($6::uuid[])] AS address_id,
           'person' || hashint8(number)::bigint % 1000 || '@sender.test' AS sender
    FROM (
        SELECT number, md5($8::text || number) AS digest,
               $4::bigint + (hashint8(number)::bigint & 2147483647) * ($5::bigint - $4::bigint) / 2147483647 AS at_ms
        FROM generate_series($1::bigint, $2::bigint) AS number
    ) AS one
), body AS (
    INSERT INTO inbound_bytes (id, bytes, search_text)
    SELECT raw_id, convert_to('Subject: Order ' || number || E'\r\n\r\nOn its way.\r\n', 'UTF8'), 'On its way.' FROM past
)
INSERT INTO inbound_messages (
    id, account_id, address_id, raw_id, address, domain, recipient, envelope_from, remote_ip, helo, sender, sender_address,
    "to", cc, subject, snippet, size_bytes, read_at, is_read, spam_score, spam_threshold, authentication, action, in_mailbox,
    thread_key)
SELECT id, $3, address_id, raw_id, address, $7, address, sender, '192.0.2.1', 'mail.sender.test',
       jsonb_build_object('name', 'A person', 'address', sender), sender, '[]', '[]', 'Order ' || number, 'On its way.',
       2900, CASE WHEN number % 5 > 0 THEN at END, number % 5 > 0, CASE WHEN number % 33 = 0 THEN 9 ELSE 0.5 END, 6,
       '{"spf":{"result":"pass","domain":"sender.test","detail":""},"dkim":{"result":"pass","domain":"sender.test","detail":""},"dmarc":{"result":"pass","domain":"sender.test","detail":""},"arc":{"result":"none","domain":null,"detail":""}}',
       'mailbox', true, number
FROM past;

-- name: count_received
-- Write the kept counts of account $1 from its messages.
INSERT INTO inbound_counts (account_id, address_id, address, domain, in_mailbox, is_spam, is_read, messages)
SELECT account_id, address_id, address, domain, in_mailbox, is_spam, is_read, count(*)
FROM inbound_messages WHERE account_id = $1 GROUP BY 1, 2, 3, 4, 5, 6, 7;

-- name: count_days
-- Write the kept counts by day of account $1 from its messages.
INSERT INTO inbound_day_counts
SELECT m.account_id, uuid7_day(m.id), place.address_id, m.in_mailbox, m.is_spam, m.is_read, count(*)
FROM inbound_messages m
CROSS JOIN LATERAL (VALUES (m.address_id), (uuid '00000000-0000-0000-0000-000000000000')) AS place (address_id)
WHERE m.account_id = $1 GROUP BY 1, 2, 3, 4, 5, 6;

-- name: vacuum
-- Vacuum now, so that autovacuum does not run during a measurement.
VACUUM (FREEZE, ANALYZE) inbound_messages, inbound_bytes, inbound_counts, inbound_day_counts;
