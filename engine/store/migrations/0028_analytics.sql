-- Delivery rates and times. Each recipient is a delivery, counted on the UTC day on which its message was accepted.

-- Counts of one account's day, by sending domain, stream, tag and recipients' domain. With tag '' a row holds all
-- deliveries to the domain, with domain '' all with the tag; with both it holds those of the pair. A message with
-- several tags counts in each of them.
CREATE TABLE delivery_groups (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    account_id  uuid NOT NULL REFERENCES accounts,
    tag         text NOT NULL,
    day         date NOT NULL,
    domain      text NOT NULL,
    stream      text NOT NULL,
    from_domain text NOT NULL,
    deliveries  integer NOT NULL,
    delivered   integer NOT NULL,
    bounced     integer NOT NULL,
    failed      integer NOT NULL,
    complained  integer NOT NULL,
    UNIQUE (account_id, tag, day, domain, stream, from_domain)
) WITH (fillfactor = 80);
CREATE INDEX delivery_groups_by_tag ON delivery_groups (account_id, day) WHERE domain = '';

-- Times from `accepted` to `delivered` of a group's deliveries, as a histogram (engine.areas.analytics.histogram). No
-- foreign key: checking one would double the cost of counting; groups are deleted together with their times.
CREATE TABLE delivery_times (
    group_id bigint NOT NULL,
    bucket   smallint NOT NULL,
    samples  integer NOT NULL,
    PRIMARY KEY (group_id, bucket)
) WITH (fillfactor = 80);

-- The tables above hold the account log up to counted_seq.
CREATE TABLE delivery_counts (
    account_id  uuid PRIMARY KEY REFERENCES accounts,
    counted_seq bigint NOT NULL DEFAULT 0,
    counted_at  timestamptz NOT NULL DEFAULT '1970-01-01 00:00Z'
) WITH (fillfactor = 50);
