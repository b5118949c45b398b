-- Hosted MTA-STS policies (RFC 8461): one for each domain that wants one, and the results of the last check.

CREATE TABLE hosted_sts_policies (
    domain_id  uuid PRIMARY KEY REFERENCES domains ON DELETE CASCADE,
    account_id uuid NOT NULL REFERENCES accounts,
    id         uuid NOT NULL,                        -- UUIDv7, made under the lock of the account's head: orders lists
    mode       text NOT NULL CHECK (mode IN ('none', 'testing', 'enforce')),
    max_age_s  integer NOT NULL,
    policy_id  text NOT NULL,                        -- UTC YYYYMMDDHHMMSS; larger with every change
    updated_at timestamptz NOT NULL,
    checked_at timestamptz,
    check_at   timestamptz NOT NULL,
    findings   jsonb                                 -- of the last check, see engine.areas.mta_sts.types
);
CREATE INDEX hosted_sts_policies_by_account ON hosted_sts_policies (account_id, id);
CREATE INDEX hosted_sts_policies_due ON hosted_sts_policies (check_at);
