-- Transport security of outbound mail: MTA-STS policies of other domains, and what TLS reports will say.

-- Fetched policies, shared by all mta processes. A row rules until it expires, whatever becomes of DNS meanwhile.
CREATE TABLE sts_policies (
    domain     text PRIMARY KEY,                     -- A-labels, lower case
    record_id  text NOT NULL,                        -- the id of the TXT record that announced it
    policy     text NOT NULL,                        -- as it was served: reports quote it
    fetched_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL
);

-- TLS sessions with domains that have a policy, by UTC day and result: counts, never a row per session (RFC 8460).
CREATE TABLE tls_days (
    day      date NOT NULL,
    domain   text NOT NULL,                          -- the policy domain, A-labels
    policy   text NOT NULL CHECK (policy IN ('sts', 'tlsa')),
    result   text NOT NULL,                          -- 'success', or a result type of RFC 8460 4.3
    mx       text NOT NULL,                          -- '' where no server was asked
    ip       text NOT NULL,                          -- of the last such session
    reason   text NOT NULL,                          -- of the last such session, in words
    sessions bigint NOT NULL,
    PRIMARY KEY (day, domain, policy, result, mx)
) WITH (fillfactor = 80);
