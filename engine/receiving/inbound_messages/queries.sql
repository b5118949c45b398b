-- fragment: rows_of_page
-- The rows of the expression `page`, newest first.
SELECT :received_columns FROM page CROSS JOIN LATERAL (SELECT * FROM inbound_messages WHERE id = page.id OFFSET 0) m
ORDER BY page.id DESC

-- fragment: flags
-- The conditions that indexes answer: ids from $2 to below $3; in_mailbox $5, is_spam $6, is_read $7 (null: either); one
-- of the addresses $8 (null: all). The subqueries keep the planner from planning each request anew, which takes 6 ms for
-- a year of weekly partitions.
m.id >= (SELECT $2::uuid) AND m.id < (SELECT $3::uuid)
AND ((SELECT $5::boolean) IS NULL OR m.in_mailbox = (SELECT $5::boolean))
AND ((SELECT $6::boolean) IS NULL OR m.is_spam = (SELECT $6::boolean))
AND ((SELECT $7::boolean) IS NULL OR m.is_read = (SELECT $7::boolean))
AND ((SELECT $8::uuid[]) IS NULL OR m.address_id = ANY ((SELECT $8::uuid[])::uuid[]))

-- fragment: kept
-- The kept count of messages with the flags of `counted_flags`.
(SELECT coalesce(sum(messages), 0)::bigint FROM inbound_counts m WHERE m.account_id = $1 AND :counted_flags)

-- fragment: counted_flags
-- Conditions on in_mailbox $4, is_spam $5, is_read $6 (null: either) and the addresses $7 (null: all). Counts are planned for their values: 6 ms, where skipping a condition saves more.
($4::boolean IS NULL OR m.in_mailbox = $4) AND ($5::boolean IS NULL OR m.is_spam = $5)
AND ($6::boolean IS NULL OR m.is_read = $6) AND ($7::uuid[] IS NULL OR m.address_id = ANY ($7))

-- fragment: texts
-- The conditions on the rest: sender $9, sent message $10, patterns $11 in subject, sender or recipient, patterns $12 in
-- the text. Null disables each.
((SELECT $9::text) IS NULL OR m.sender_address = (SELECT $9::text))
AND ((SELECT $10::uuid) IS NULL OR m.replies_to = (SELECT $10::uuid))
AND ((SELECT $11::text[]) IS NULL
     OR m.subject ILIKE ANY ((SELECT $11::text[])::text[]) OR m.recipient ILIKE ANY ((SELECT $11::text[])::text[])
     OR m.sender_address ILIKE ANY ((SELECT $11::text[])::text[])
     OR m.sender->>'name' ILIKE ANY ((SELECT $11::text[])::text[]))
AND ((SELECT $12::text[]) IS NULL OR EXISTS (
    SELECT 1 FROM (SELECT search_text FROM inbound_bytes WHERE id = m.raw_id OFFSET 0) b
    WHERE b.search_text ILIKE ANY ((SELECT $12::text[])::text[])))

-- name: list_received
-- List received messages of account $1 by their flags, newest first, at most $4. The index alone finds the page
-- (decision 0086).
WITH page AS MATERIALIZED (
    SELECT m.id FROM inbound_messages m WHERE m.account_id = ANY (ARRAY[$1::uuid]) AND :flags
    ORDER BY m.account_id DESC, m.id DESC LIMIT (SELECT $4::bigint)
)
:rows_of_page;

-- name: list_unread
-- The same for unread messages, along their own index.
WITH page AS MATERIALIZED (
    SELECT m.id FROM inbound_messages m WHERE m.account_id = ANY (ARRAY[$1::uuid]) AND NOT m.is_read AND :flags
    ORDER BY m.account_id DESC, m.id DESC LIMIT (SELECT $4::bigint)
)
:rows_of_page;

-- name: list_spam
-- The same for spam, along its own index.
WITH page AS MATERIALIZED (
    SELECT m.id FROM inbound_messages m WHERE m.account_id = ANY (ARRAY[$1::uuid]) AND m.is_spam AND :flags
    ORDER BY m.account_id DESC, m.id DESC LIMIT (SELECT $4::bigint)
)
:rows_of_page;

-- name: list_of_addresses
-- The same for a few addresses $8: a page along the index of each, merged (decision 0086).
WITH page AS MATERIALIZED (
    SELECT found.id FROM unnest((SELECT $8::uuid[])::uuid[]) AS a (id) CROSS JOIN LATERAL (
        SELECT m.id FROM inbound_messages m WHERE m.address_id = ANY (ARRAY[a.id]) AND m.account_id = $1 AND :flags
        ORDER BY m.address_id DESC, m.id DESC LIMIT (SELECT $4::bigint)) found
    ORDER BY found.id DESC LIMIT (SELECT $4::bigint)
)
:rows_of_page;

-- name: list_searched
-- List received messages of account $1 by flags and texts, newest first, at most $4 (decision 0086).
SELECT :received_columns FROM inbound_messages m
WHERE m.account_id = ANY (ARRAY[$1::uuid]) AND :flags AND :texts
ORDER BY m.account_id DESC, m.id DESC LIMIT (SELECT $4::bigint);

-- name: list_from_sender
-- The same for a sender, along the index of senders.
SELECT :received_columns FROM inbound_messages m
WHERE m.account_id = ANY (ARRAY[$1::uuid]) AND m.sender_address = (SELECT $9::text) AND :flags AND :texts
ORDER BY m.account_id DESC, m.id DESC LIMIT (SELECT $4::bigint);

-- name: list_replies
-- The same for the replies to a sent message, along their index.
SELECT :received_columns FROM inbound_messages m
WHERE m.account_id = ANY (ARRAY[$1::uuid]) AND m.replies_to = (SELECT $10::uuid) AND m.replies_to IS NOT NULL
  AND :flags AND :texts
ORDER BY m.account_id DESC, m.id DESC LIMIT (SELECT $4::bigint);

-- name: count_between
-- Count received messages of account $1 with ids from $2 to below $3 by their flags.
SELECT count(*) AS found FROM inbound_messages m WHERE m.account_id = $1 AND m.id >= $2 AND m.id < $3 AND :counted_flags;

-- name: count_days
-- The same for a period that begins on a day before $8 and ends on the day $9 or later: the kept counts of the days from
-- $8 to before $9, and the messages of the period with ids below $10 and from $11, which begin these days.
SELECT (SELECT coalesce(sum(messages), 0)::bigint FROM inbound_day_counts m
        WHERE m.account_id = $1 AND m.day >= $8 AND m.day < $9
          AND ($4::boolean IS NULL OR m.in_mailbox = $4) AND ($5::boolean IS NULL OR m.is_spam = $5)
          AND ($6::boolean IS NULL OR m.is_read = $6)
          AND m.address_id = ANY (coalesce($7::uuid[], ARRAY[uuid '00000000-0000-0000-0000-000000000000'])))
     + (SELECT count(*) FROM inbound_messages m
        WHERE m.account_id = $1 AND m.id >= $2 AND m.id < $10 AND :counted_flags)
     + (SELECT count(*) FROM inbound_messages m
        WHERE m.account_id = $1 AND m.id >= $11 AND m.id < $3 AND :counted_flags) AS found;

-- name: count_texts
-- Count received messages of account $1 by flags and texts; $4 is not used.
SELECT count(*) AS found FROM inbound_messages m
WHERE m.account_id = $1 AND :flags AND :texts AND $4::integer IS NOT NULL;

-- name: count_replies
-- The same for the replies to a sent message, along their index.
SELECT count(*) AS found FROM inbound_messages m
WHERE m.account_id = $1 AND m.replies_to = (SELECT $10::uuid) AND m.replies_to IS NOT NULL AND :flags AND :texts
  AND $4::integer IS NOT NULL;

-- name: count_from_sender
-- The same for a sender, along the index of senders.
SELECT count(*) AS found FROM inbound_messages m
WHERE m.account_id = $1 AND m.sender_address = (SELECT $9::text) AND :flags AND :texts AND $4::integer IS NOT NULL;

-- name: kept_count
-- Return the kept count of received messages of account $1 by their flags; $2 and $3 are not used.
SELECT :kept AS found WHERE $2::uuid IS NOT NULL AND $3::uuid IS NOT NULL;

-- name: addresses_of
-- Return the claimed addresses, present and deleted ones, at which account $1 received mail: those named $2, under
-- domain $3, under one of the domains $4 (null: all).
SELECT DISTINCT address_id FROM inbound_counts
WHERE account_id = $1 AND ($2::text IS NULL OR lower(address) = lower($2)) AND ($3::text IS NULL OR domain = $3)
  AND ($4::text[] IS NULL OR domain = ANY ($4));

-- name: read_received
-- Read received message $2 of account $1, if it came to one of the domains $3 (null: all).
SELECT :received_columns FROM inbound_messages m
WHERE m.account_id = $1 AND m.id = $2 AND ($3::text[] IS NULL OR m.domain = ANY ($3));

-- name: read_rows
-- Read received messages $2 of account $1, if they came to one of the domains $3 (null: all); $4 and $5 bound their ids.
SELECT :received_columns FROM inbound_messages m
WHERE m.account_id = $1 AND m.id = ANY ($2::uuid[]) AND m.id BETWEEN $4 AND $5
  AND ($3::text[] IS NULL OR m.domain = ANY ($3)) ORDER BY m.id DESC;

-- name: read_bytes
-- Read the bytes $1 of a received message.
SELECT bytes FROM inbound_bytes WHERE id = $1;

-- name: mark_read
-- Set is_read of the received messages $2 of account $1 to $3 at $4 and change the counts; return those that changed.
-- The first time of reading stays. $5 and $6 bound the ids. The account's head is locked.
WITH before AS MATERIALIZED (
    SELECT id, address_id, address, domain, in_mailbox, is_spam, is_read FROM inbound_messages
    WHERE account_id = $1 AND id = ANY ($2::uuid[]) AND id BETWEEN $5 AND $6 AND is_read <> $3
), after AS (
    UPDATE inbound_messages m SET is_read = $3, read_at = CASE WHEN $3 THEN coalesce(m.read_at, $4) ELSE m.read_at END
    FROM before WHERE m.id = before.id AND m.id BETWEEN $5 AND $6
    RETURNING m.id, m.address_id, m.address, m.domain, m.in_mailbox, m.is_spam, m.is_read
), :recounted
SELECT id FROM after ORDER BY id;

-- name: mark_spam
-- Set the spam override of the received messages $2 of account $1 to $3 (null: the score decides) and change the counts;
-- return those whose override changed. $4 and $5 bound the ids. The account's head is locked.
WITH before AS MATERIALIZED (
    SELECT id, address_id, address, domain, in_mailbox, is_spam, is_read FROM inbound_messages
    WHERE account_id = $1 AND id = ANY ($2::uuid[]) AND id BETWEEN $4 AND $5 AND spam_override IS DISTINCT FROM $3
), after AS (
    UPDATE inbound_messages m SET spam_override = $3
    FROM before WHERE m.id = before.id AND m.id BETWEEN $4 AND $5
    RETURNING m.id, m.address_id, m.address, m.domain, m.in_mailbox, m.is_spam, m.is_read
), :recounted
SELECT id FROM after ORDER BY id;

-- name: keep_unforwarded
-- Show the received message $2 of account $1 in the mailbox because it was not forwarded for the reason $3, and change
-- the counts; return it if it exists. The account's head is locked.
WITH before AS MATERIALIZED (
    SELECT id, address_id, address, domain, in_mailbox, is_spam, is_read FROM inbound_messages
    WHERE account_id = $1 AND id = $2
), after AS (
    UPDATE inbound_messages m SET in_mailbox = true, fallback = true, forward_error = $3
    FROM before WHERE m.id = before.id AND m.id = $2
    RETURNING m.id, m.address_id, m.address, m.domain, m.in_mailbox, m.is_spam, m.is_read
), :recounted
SELECT id FROM after;

-- name: mark_forwarded
-- Name the sent message $3 that forwards the received message $2 of account $1; return it if it exists.
UPDATE inbound_messages SET forwarded_as = $3, forward_error = NULL WHERE account_id = $1 AND id = $2 RETURNING id;

-- fragment: recounted
-- Move the messages of `before` to where `after` has them in the kept counts; their rows are locked in one order.
recounted AS (
    INSERT INTO inbound_counts AS c (account_id, address_id, address, domain, in_mailbox, is_spam, is_read, messages)
    SELECT $1, address_id, min(address), min(domain), in_mailbox, is_spam, is_read, sum(change) FROM (
        SELECT *, -1 AS change FROM before UNION ALL SELECT *, 1 AS change FROM after) moved
    GROUP BY address_id, in_mailbox, is_spam, is_read HAVING sum(change) <> 0
    ORDER BY address_id, in_mailbox, is_spam, is_read
    ON CONFLICT (account_id, address_id, in_mailbox, is_spam, is_read)
    DO UPDATE SET messages = c.messages + excluded.messages
), recounted_days AS (
    INSERT INTO inbound_day_counts AS c (account_id, day, address_id, in_mailbox, is_spam, is_read, messages)
    SELECT $1, uuid7_day(moved.id), place.address_id, in_mailbox, is_spam, is_read, sum(change) FROM (
        SELECT *, -1 AS change FROM before UNION ALL SELECT *, 1 AS change FROM after) moved, :places
    GROUP BY uuid7_day(moved.id), place.address_id, in_mailbox, is_spam, is_read HAVING sum(change) <> 0
    ORDER BY 2, 3, 4, 5, 6
    ON CONFLICT (account_id, day, address_id, in_mailbox, is_spam, is_read)
    DO UPDATE SET messages = c.messages + excluded.messages
)

-- fragment: places
-- The rows in which a message `moved` counts: that of its address, and that of all addresses.
LATERAL (VALUES (moved.address_id), (uuid '00000000-0000-0000-0000-000000000000')) AS place (address_id)

-- name: lock_bytes
-- Lock the bytes of the received messages $2 of account $1 against removal with the messages of other accounts that
-- share them; $3 and $4 bound the ids of the messages.
SELECT b.id FROM inbound_bytes b
WHERE b.id IN (SELECT raw_id FROM inbound_messages
               WHERE account_id = $1 AND id = ANY ($2::uuid[]) AND id BETWEEN $3 AND $4)
ORDER BY b.id FOR UPDATE;

-- name: delete_received
-- Delete the received messages $2 of account $1, take them off the counts, and remove their bytes $3 (locked) that no
-- other message has; $4 and $5 bound the ids of messages that may share bytes. The account's head is locked.
WITH gone AS (
    DELETE FROM inbound_messages WHERE account_id = $1 AND id = ANY ($2::uuid[]) AND id BETWEEN $4 AND $5
    RETURNING id, raw_id, address_id, address, domain, in_mailbox, is_spam, is_read
), uncounted AS (
    INSERT INTO inbound_counts AS c (account_id, address_id, address, domain, in_mailbox, is_spam, is_read, messages)
    SELECT $1, address_id, min(address), min(domain), in_mailbox, is_spam, is_read, -count(*) FROM gone
    GROUP BY address_id, in_mailbox, is_spam, is_read ORDER BY address_id, in_mailbox, is_spam, is_read
    ON CONFLICT (account_id, address_id, in_mailbox, is_spam, is_read)
    DO UPDATE SET messages = c.messages + excluded.messages
), uncounted_days AS (
    INSERT INTO inbound_day_counts AS c (account_id, day, address_id, in_mailbox, is_spam, is_read, messages)
    SELECT $1, uuid7_day(moved.id), place.address_id, in_mailbox, is_spam, is_read, -count(*) FROM gone moved, :places
    GROUP BY uuid7_day(moved.id), place.address_id, in_mailbox, is_spam, is_read ORDER BY 2, 3, 4, 5, 6
    ON CONFLICT (account_id, day, address_id, in_mailbox, is_spam, is_read)
    DO UPDATE SET messages = c.messages + excluded.messages
), freed AS (
    DELETE FROM inbound_bytes b WHERE b.id = ANY ($3::uuid[]) AND NOT EXISTS (
        SELECT 1 FROM inbound_messages m WHERE m.raw_id = b.id AND m.id BETWEEN $4 AND $5
        AND NOT (m.account_id = $1 AND m.id = ANY ($2::uuid[])))
)
SELECT id FROM gone ORDER BY id;

-- name: erase_content
-- Delete the bytes of the received messages $2 of account $1 that no other message has ($3, locked), and what was taken
-- from them; $4 and $5 bound the ids of messages that may share bytes. The account's head is locked.
WITH erased AS (
    UPDATE inbound_messages SET raw_id = '00000000-0000-0000-0000-000000000000', snippet = ''
    WHERE account_id = $1 AND id = ANY ($2::uuid[]) AND id BETWEEN $4 AND $5
)
DELETE FROM inbound_bytes b WHERE b.id = ANY ($3::uuid[]) AND NOT EXISTS (
    SELECT 1 FROM inbound_messages m WHERE m.raw_id = b.id AND m.id BETWEEN $4 AND $5
    AND NOT (m.account_id = $1 AND m.id = ANY ($2::uuid[])));

-- name: thread_received
-- Return the newest $6 received messages of account $1 in one of the conversations $2, that answer one of the sent
-- messages $3, or with ids $4, at one of the domains $5 (null: all). Joined with OR, the conditions would make a generic
-- plan read all messages of the account.
WITH found AS (
    SELECT id FROM unnest($4::uuid[]) AS received (id)
    UNION
    SELECT m.id FROM inbound_messages m WHERE m.account_id = $1 AND m.thread_key = ANY ($2::bigint[])
    UNION
    SELECT m.id FROM inbound_messages m
    WHERE m.account_id = $1 AND m.replies_to = ANY ($3::uuid[]) AND m.replies_to IS NOT NULL
)
SELECT m.id, m.address, m.sender, m.subject, m.snippet, m.is_read, m.thread_key, m.replies_to
FROM found CROSS JOIN LATERAL (SELECT * FROM inbound_messages WHERE id = found.id OFFSET 0) m
WHERE m.account_id = $1 AND ($5::text[] IS NULL OR m.domain = ANY ($5))
ORDER BY m.id DESC LIMIT $6;

-- name: thread_sent
-- Return the newest $5 sent messages of account $1 with ids $2, or that answer one of the received messages $3, from one
-- of the domains $4 and on one of the streams $6 (null: all); as `thread_received` does.
WITH found AS (
    SELECT id FROM unnest($2::uuid[]) AS sent (id)
    UNION
    SELECT m.id FROM messages m WHERE m.account_id = $1 AND m.answers = ANY ($3::uuid[])
)
SELECT m.id, m.sender, m.from_domain, m.subject, m.status, m.answers,
       ARRAY(SELECT r.address FROM recipients r WHERE r.message_id = m.id ORDER BY r.n LIMIT 10) AS recipients
FROM found CROSS JOIN LATERAL (SELECT * FROM messages WHERE id = found.id OFFSET 0) m
WHERE m.account_id = $1 AND ($4::text[] IS NULL OR m.from_domain = ANY ($4))
  AND ($6::text[] IS NULL OR m.stream = ANY ($6))
ORDER BY m.id DESC LIMIT $5;
