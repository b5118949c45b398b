-- Counts that analytics and the mailbox read instead of many rows.

-- Times from `accepted` to `delivered` in the row of their group instead of one row for each bucket: reading and adding
-- to them took most of the time of delivery analytics.
--
-- `times` is packed as engine.areas.analytics.histogram describes: bucket (2 octets) and samples (4 octets), repeated.
ALTER TABLE delivery_groups ADD COLUMN times bytea NOT NULL DEFAULT '';
UPDATE delivery_groups g SET times = packed.times FROM (
    SELECT group_id, string_agg(int2send(bucket) || int4send(samples), '' ORDER BY bucket)
    FROM delivery_times WHERE samples <> 0 GROUP BY group_id
) AS packed (group_id, times) WHERE g.id = packed.group_id;
DROP TABLE delivery_times;

-- No other table names a group by number any more.
ALTER TABLE delivery_groups
    DROP COLUMN id,
    DROP CONSTRAINT delivery_groups_account_id_tag_day_domain_stream_from_domai_key,
    ADD PRIMARY KEY (account_id, tag, day, domain, stream, from_domain);

-- Exact counts of stored received messages by UTC day of their id, changed in the transaction that changes them: of each
-- address, and of all addresses together (address_id 0).
CREATE TABLE inbound_day_counts (
    account_id uuid NOT NULL REFERENCES accounts,
    day        date NOT NULL,
    address_id uuid NOT NULL,
    in_mailbox boolean NOT NULL,
    is_spam    boolean NOT NULL,
    is_read    boolean NOT NULL,
    messages   bigint NOT NULL,
    PRIMARY KEY (account_id, day, address_id, in_mailbox, is_spam, is_read)
) WITH (fillfactor = 50);

-- The UTC day of an id of version 7.
CREATE FUNCTION uuid7_day(id uuid) RETURNS date LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN date '1970-01-01'
    + (('x' || left(id::text, 8) || substr(id::text, 10, 4))::bit(48)::bigint / 86400000)::integer;

INSERT INTO inbound_day_counts
SELECT m.account_id, uuid7_day(m.id), place.address_id, m.in_mailbox, m.is_spam, m.is_read, count(*)
FROM inbound_messages m CROSS JOIN LATERAL (VALUES (m.address_id), (uuid '00000000-0000-0000-0000-000000000000')) AS place (address_id)
GROUP BY 1, 2, 3, 4, 5, 6;
