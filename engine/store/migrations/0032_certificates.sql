-- Certificates of MTA-STS policy hosts, got by ACME (RFC 8555), shared by all hosts of the installation.

CREATE TABLE acme_accounts (
    directory  text PRIMARY KEY,                     -- URL of the certificate authority
    sealed_key bytea NOT NULL,                       -- PKCS #8, AES-256-GCM under a key derived from the pepper
    url        text                                  -- null until the authority has registered the key
);

-- Answers to HTTP-01 challenges, which any api process or policy server gives (RFC 8555 8.3).
CREATE TABLE acme_challenges (
    token             text PRIMARY KEY,
    key_authorization text NOT NULL,
    expires_at        timestamptz NOT NULL
);

CREATE TABLE tls_certificates (
    host       text PRIMARY KEY,
    domain_id  uuid NOT NULL REFERENCES domains ON DELETE CASCADE,
    sealed_key bytea,                                -- null until the first certificate
    chain      text,                                 -- PEM, leaf first
    not_after  timestamptz,
    due_at     timestamptz NOT NULL,                 -- when to get the next one, or to try again
    failures   integer NOT NULL DEFAULT 0,           -- in a row
    error      text                                  -- of the last failure
);
CREATE INDEX tls_certificates_due ON tls_certificates (due_at);
CREATE INDEX tls_certificates_by_domain ON tls_certificates (domain_id);
