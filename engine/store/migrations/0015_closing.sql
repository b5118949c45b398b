-- Sub-accounts, suspension and the figures it is judged by, deletion and what is left of an erased account.

CREATE INDEX accounts_by_parent ON accounts (parent_id, id) WHERE parent_id IS NOT NULL;

-- A sub-account is held to its parent's plan, whoever changes that.
CREATE FUNCTION follow_parents_plan() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE accounts SET plan = NEW.plan WHERE parent_id = NEW.id AND plan <> NEW.plan;
    RETURN NULL;
END $$;
CREATE TRIGGER sub_accounts_follow AFTER UPDATE OF plan ON accounts
    FOR EACH ROW WHEN (OLD.plan IS DISTINCT FROM NEW.plan) EXECUTE FUNCTION follow_parents_plan();

-- Why an account is suspended: it is, as long as one of these stands (accounts.status follows in the same transaction).
CREATE TABLE suspensions (
    account_id uuid NOT NULL REFERENCES accounts,
    cause      text NOT NULL CHECK (cause IN ('rates', 'operator', 'parent', 'inherited')),
    reason     text NOT NULL,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (account_id, cause)
);

-- How far an account's log has been looked through for outcomes, and what is not held against it any more.
CREATE TABLE account_standings (
    account_id  uuid PRIMARY KEY REFERENCES accounts,
    judged_seq  bigint NOT NULL DEFAULT 0,
    pardoned_at timestamptz,                         -- mail accepted before this is forgiven
    hold_id     uuid                                 -- the hold that its suspension has laid on its queued mail
) WITH (fillfactor = 50);

-- Outcomes by the quarter hour in which they came, for the last day: recipients settled, and of them bounced by a fault
-- that is not the service's own; complaints.
CREATE TABLE outcome_quarters (
    account_id uuid NOT NULL REFERENCES accounts,
    quarter    integer NOT NULL,                     -- of Unix time, as in message_quarters
    settled    integer NOT NULL,
    bounced    integer NOT NULL,
    complained integer NOT NULL,
    PRIMARY KEY (account_id, quarter)
) WITH (fillfactor = 50);
CREATE INDEX outcome_quarters_by_time ON outcome_quarters (quarter);

-- Accounts whose deletion has been asked for; the row goes with the account, or when the deletion is canceled.
CREATE TABLE deletions (
    account_id   uuid PRIMARY KEY REFERENCES accounts,
    requested_at timestamptz NOT NULL,
    due_at       timestamptz NOT NULL,
    began_at     timestamptz                         -- the erasure: from then on there is no way back
);
CREATE INDEX deletions_by_due ON deletions (due_at);

-- All that is left of an erased account: that it was, and where its log ended. Exports that were taken of the log can
-- be checked against it.
CREATE TABLE erased_accounts (
    account_id   uuid PRIMARY KEY,
    opened_at    timestamptz NOT NULL,
    requested_at timestamptz NOT NULL,
    erased_at    timestamptz NOT NULL,
    seq          bigint NOT NULL,
    hash         bytea NOT NULL
);

-- What erasure looks rows up by.
CREATE INDEX users_by_last_account ON users (last_account_id) WHERE last_account_id IS NOT NULL;
CREATE INDEX system_mail_by_address ON system_mail (address);
CREATE INDEX tls_reports_by_message ON tls_reports (message_id) WHERE message_id IS NOT NULL;
