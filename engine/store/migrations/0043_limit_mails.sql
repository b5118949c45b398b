-- Mails about used-up limits; payment events by account, and such that wait; the deletion of old billing records.

-- The newest mail about each limit of an account: one a period, and another one only if the limit was raised since.
CREATE TABLE limit_mails (
    account_id uuid NOT NULL REFERENCES accounts,
    kind       text NOT NULL,                        -- a SystemMailKind
    period     date NOT NULL,                        -- the UTC day, or the first day of the month
    cap        bigint NOT NULL,                      -- the limit that the mail named
    PRIMARY KEY (account_id, kind)
);

-- The content of a refund that came before its payment; it is applied with that.
ALTER TABLE provider_events ADD COLUMN waiting jsonb;
CREATE INDEX provider_events_waiting ON provider_events (account_id) WHERE waiting IS NOT NULL;
CREATE INDEX provider_events_by_account ON provider_events (account_id, received_at);

-- What is older than ten years is found by these; invoices, checkouts and charges have ids that order by time.
CREATE INDEX provider_events_by_time ON provider_events (received_at);
CREATE INDEX billing_events_by_time ON billing_events (occurred_at);
CREATE INDEX refund_notices_by_day ON refund_notices (day);

-- A billing history may begin above 1 once its oldest events are deleted: `purged_hash` is the hash of the last of them.
ALTER TABLE billing_heads
    ADD COLUMN purged_through_seq bigint NOT NULL DEFAULT 0,
    ADD COLUMN purged_hash bytea NOT NULL DEFAULT decode(repeat('00', 32), 'hex');
