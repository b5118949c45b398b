-- Reports by mail: delivery status notifications, complaints, DMARC aggregate reports and TLS reports.

-- Report mails as received. A worker reads them; what changed something loses its bytes at once, all else is kept for
-- seven days, so that the operator can see why it changed nothing.
CREATE TABLE report_mails (
    id            uuid PRIMARY KEY,                  -- UUIDv7: sorts by arrival
    purpose       text NOT NULL CHECK (purpose IN ('bounce', 'feedback', 'dmarc', 'tls')),
    local         text NOT NULL,                     -- of the report address, in lower case: holds the token
    host          text NOT NULL,
    envelope_from text NOT NULL,
    remote_ip     inet NOT NULL,
    received_at   timestamptz NOT NULL,
    size_bytes    integer NOT NULL,
    digest        bytea NOT NULL,                    -- SHA-256 of the body: header fields differ by the path taken
    raw           bytea,                             -- null once applied, or too large to be read
    state         text NOT NULL DEFAULT 'waiting' CHECK (state IN ('waiting', 'applied', 'ignored', 'unreadable')),
    result        text,                              -- the effect, or why there is none: one word
    reason        text,                              -- the same as a sentence
    account_id    uuid,                              -- known once the report is read
    message_id    uuid,
    tries         smallint NOT NULL DEFAULT 0,
    due_at        timestamptz NOT NULL,
    UNIQUE (local, digest)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 2000);
ALTER TABLE report_mails ALTER COLUMN raw SET STORAGE EXTERNAL;
CREATE INDEX report_mails_due ON report_mails (due_at) WHERE state = 'waiting';
CREATE INDEX report_mails_by_account ON report_mails (account_id) WHERE account_id IS NOT NULL;

-- DMARC aggregate reports that were counted, so that each counts once.
CREATE TABLE dmarc_reports (
    account_id  uuid NOT NULL REFERENCES accounts,
    domain_id   uuid NOT NULL REFERENCES domains ON DELETE CASCADE,
    reporter    text NOT NULL,
    report_id   text NOT NULL,
    begin_at    timestamptz NOT NULL,
    end_at      timestamptz NOT NULL,
    day         date NOT NULL,                       -- on which its rows count
    received_at timestamptz NOT NULL,
    PRIMARY KEY (domain_id, reporter, report_id, begin_at)
);
CREATE INDEX dmarc_reports_by_account ON dmarc_reports (account_id, day);

-- The rows of all reports about a domain, added up.
CREATE TABLE dmarc_rows (
    account_id   uuid NOT NULL REFERENCES accounts,
    domain_id    uuid NOT NULL REFERENCES domains ON DELETE CASCADE,
    day          date NOT NULL,
    source_ip    inet NOT NULL,
    header_from  text NOT NULL,
    dkim_aligned boolean NOT NULL,
    spf_aligned  boolean NOT NULL,
    disposition  text NOT NULL CHECK (disposition IN ('none', 'quarantine', 'reject')),
    messages     bigint NOT NULL,
    PRIMARY KEY (account_id, day, domain_id, source_ip, header_from, dkim_aligned, spf_aligned, disposition)
) WITH (fillfactor = 80);
CREATE INDEX dmarc_rows_by_domain ON dmarc_rows (domain_id);

-- TLS reports that were counted, so that each counts once, and their results added up.
CREATE TABLE received_tls_reports (
    account_id  uuid NOT NULL REFERENCES accounts,
    domain_id   uuid NOT NULL REFERENCES domains ON DELETE CASCADE,
    reporter    text NOT NULL,
    report_id   text NOT NULL,
    begin_at    timestamptz NOT NULL,
    day         date NOT NULL,
    received_at timestamptz NOT NULL,
    PRIMARY KEY (domain_id, reporter, report_id, begin_at)
);
CREATE INDEX received_tls_reports_by_account ON received_tls_reports (account_id, day);

CREATE TABLE received_tls_rows (
    account_id    uuid NOT NULL REFERENCES accounts,
    domain_id     uuid NOT NULL REFERENCES domains ON DELETE CASCADE,
    day           date NOT NULL,
    policy_type   text NOT NULL,                     -- tlsa, sts, no-policy-found
    policy_domain text NOT NULL,
    result_type   text NOT NULL,                     -- '' in the row of the policy's own totals (RFC 8460 4.3)
    sessions      bigint NOT NULL,                   -- all sessions, successful or not; 0 in rows of a result type
    failures      bigint NOT NULL,
    PRIMARY KEY (account_id, day, domain_id, policy_type, policy_domain, result_type)
) WITH (fillfactor = 80);
CREATE INDEX received_tls_rows_by_domain ON received_tls_rows (domain_id);
