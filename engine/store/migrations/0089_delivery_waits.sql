-- Why deliveries waited, in milliseconds by cause (engine.delivery.waits): what a queue row has waited so far, written
-- when it is postponed or retried; and the sums of attempts by hour, provider of the mailbox, stream and sending domain.
ALTER TABLE queue ADD COLUMN waits text;

CREATE TABLE delivery_waits (
    account_id     uuid NOT NULL REFERENCES accounts,
    hour           timestamptz NOT NULL,
    provider       text NOT NULL,
    stream         text NOT NULL,
    from_domain    text NOT NULL,
    attempts       integer NOT NULL,
    schedule       bigint NOT NULL,
    queue          bigint NOT NULL,
    site_limits    bigint NOT NULL,
    other_accounts bigint NOT NULL,
    own_mail       bigint NOT NULL,
    connection     bigint NOT NULL,
    "transaction"  bigint NOT NULL,
    retry          bigint NOT NULL,
    fair_shares    double precision NOT NULL,            -- their sum
    times          bytea NOT NULL DEFAULT '',            -- the histogram of other_accounts
    PRIMARY KEY (account_id, hour, provider, stream, from_domain)
) WITH (fillfactor = 80);
