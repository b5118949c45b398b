-- Sums of delivery_groups over calendar weeks, so that 90 days of analytics read a quarter of the rows. Only groups of a
-- domain over all tags and of a tag over all domains have weeks: those of pairs are many, and each is read by itself.
-- `day` is the Monday of the week; the columns are those of delivery_groups.
CREATE TABLE delivery_weeks (
    LIKE delivery_groups,
    PRIMARY KEY (account_id, tag, day, domain, stream, from_domain),
    FOREIGN KEY (account_id) REFERENCES accounts
) WITH (fillfactor = 80);
CREATE INDEX delivery_weeks_by_tag ON delivery_weeks (account_id, day) WHERE domain = '';

INSERT INTO delivery_weeks (account_id, tag, day, domain, stream, from_domain, deliveries, delivered, bounced, failed,
                            complained, times)
SELECT account_id, tag, date_trunc('week', day)::date AS monday, domain, stream, from_domain, sum(deliveries),
       sum(delivered), sum(bounced), sum(failed), sum(complained), string_agg(times, '')
FROM delivery_groups WHERE tag = '' OR domain = '' GROUP BY account_id, tag, monday, domain, stream, from_domain;
