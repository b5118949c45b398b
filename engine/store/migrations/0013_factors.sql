-- Second factors and passkeys. The shared secret of an authenticator app stands with its person (users.totp_sealed).

CREATE TABLE recovery_codes (
    user_id uuid NOT NULL REFERENCES users ON DELETE CASCADE,
    digest  bytea NOT NULL,                       -- HMAC-SHA-256 under a key derived from the pepper; gone once used
    PRIMARY KEY (user_id, digest)
);

-- Wrong codes in a row, apart for each network that a person is known from, for all others together, and for changes.
CREATE TABLE code_tries (
    user_id      uuid NOT NULL REFERENCES users ON DELETE CASCADE,
    place        text NOT NULL,
    failed       integer NOT NULL,
    failed_at    timestamptz NOT NULL,
    locked_until timestamptz,
    PRIMARY KEY (user_id, place)
);

CREATE TABLE passkeys (
    id              uuid PRIMARY KEY,
    user_id         uuid NOT NULL REFERENCES users ON DELETE CASCADE,
    credential_id   bytea NOT NULL UNIQUE CHECK (length(credential_id) BETWEEN 16 AND 1023),
    public_key      bytea NOT NULL,               -- COSE_Key (RFC 9052 section 7)
    sign_count      bigint NOT NULL,              -- 0 for ever where the authenticator does not count
    name            text NOT NULL,
    transports      text[] NOT NULL,
    backup_eligible boolean NOT NULL,             -- may be synchronised between devices; never changes
    backed_up       boolean NOT NULL,             -- as of the last use
    created_at      timestamptz NOT NULL,
    last_used_at    timestamptz,
    suspected_at    timestamptz                   -- its counter has gone backwards: maybe there is a copy
);
CREATE INDEX passkeys_by_user ON passkeys (user_id);

CREATE TABLE passkey_challenges (
    digest     bytea PRIMARY KEY,                 -- SHA-256 of the challenge
    holder     bytea NOT NULL,                    -- SHA-256 of what the browser or the session has to show beside it
    expires_at timestamptz NOT NULL
);
CREATE INDEX passkey_challenges_by_end ON passkey_challenges (expires_at);
