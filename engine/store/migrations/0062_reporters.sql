-- The author of a report mail, if SPF or DKIM authenticate it: complaints count by who makes them (decision 0090).
ALTER TABLE report_mails
    ADD COLUMN reporter_address text,                -- of From, in lower case; null: not authenticated, or not judged
    ADD COLUMN signed_by        text;                -- the domain of its DKIM signature; null: authenticated by SPF alone

-- The different reporters of an account's complaints of the last day, and the domains of the recipients who complained:
-- complaints suspend an account only if several stand here.
CREATE TABLE complaint_sources (
    account_id uuid NOT NULL REFERENCES accounts,
    reporter   text NOT NULL,                        -- the last two labels of the reporter's domain; '' if not authenticated
    domain     text NOT NULL,                        -- of the recipients
    quarter    integer NOT NULL,                     -- the quarter-hour of the last complaint, as in outcome_quarters
    PRIMARY KEY (account_id, reporter, domain)
) WITH (fillfactor = 50);
CREATE INDEX complaint_sources_by_time ON complaint_sources (quarter);
