-- Outcomes by the provider of the recipient's mailbox, which the mail server of the attempt tells: Gmail, Microsoft and
-- so on (engine.receiving.analytics.mailbox_providers). Few rows per day, so that a page that shows the health of
-- delivery reads tens of rows, not one for each recipient domain. The columns are those of delivery_groups.
CREATE TABLE delivery_providers (
    account_id  uuid NOT NULL REFERENCES accounts,
    day         date NOT NULL,
    provider    text NOT NULL,
    stream      text NOT NULL,
    from_domain text NOT NULL,
    delivered   integer NOT NULL,
    bounced     integer NOT NULL,
    failed      integer NOT NULL,
    complained  integer NOT NULL,
    times       bytea NOT NULL DEFAULT '',
    PRIMARY KEY (account_id, day, provider, stream, from_domain)
) WITH (fillfactor = 80);

-- The last weeks by the best known domains alone: the servers of the others were not counted.
INSERT INTO delivery_providers (account_id, day, provider, stream, from_domain, delivered, bounced, failed, complained,
                                times)
SELECT account_id, day, CASE
           WHEN domain IN ('gmail.com', 'googlemail.com') THEN 'google'
           WHEN domain IN ('outlook.com', 'hotmail.com', 'live.com', 'msn.com') THEN 'microsoft'
           WHEN domain IN ('yahoo.com', 'ymail.com', 'aol.com') THEN 'yahoo'
           WHEN domain IN ('icloud.com', 'me.com', 'mac.com') THEN 'apple'
           ELSE 'other' END AS provider,
       stream, from_domain, sum(delivered), sum(bounced), sum(failed), sum(complained), string_agg(times, '')
FROM delivery_groups WHERE tag = '' AND domain <> '' AND day >= current_date - 8
GROUP BY account_id, day, provider, stream, from_domain;

-- Deliveries that an attempt has deferred, of one account.
CREATE INDEX queue_deferred ON queue (account_id, domain, message_id) WHERE attempts > 0;
