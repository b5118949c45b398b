-- People who sign in: their profile, their sessions, the single-use tokens sent to them, and the mail that tells them.

ALTER TABLE users
    ADD COLUMN display_name        text,
    ADD COLUMN timezone            text,
    ADD COLUMN signature           text,
    ADD COLUMN signature_addresses text[],
    ADD COLUMN password_changed_at timestamptz,
    ADD COLUMN last_account_id     uuid REFERENCES accounts,  -- where the next sign-in leads
    ADD COLUMN totp_sealed         bytea,                     -- the shared secret, sealed under a key derived from the pepper
    ADD COLUMN totp_enabled_at     timestamptz,               -- null: enrolment has begun, or there is none
    ADD COLUMN totp_last_step      bigint;                    -- RFC 6238 time step of the last accepted code
CREATE INDEX members_by_user ON members (user_id);

-- A removed member's sessions go with the membership. The secret itself is nowhere.
CREATE TABLE sessions (
    id         uuid PRIMARY KEY,
    digest     bytea NOT NULL UNIQUE,                -- HMAC-SHA-256 of the secret under the pepper
    user_id    uuid NOT NULL REFERENCES users ON DELETE CASCADE,
    account_id uuid NOT NULL,
    method     text NOT NULL,                        -- how the person proved who they are
    address    text NOT NULL,                        -- of the network, at the last use
    agent      text NOT NULL,                        -- User-Agent at sign-in
    created_at timestamptz NOT NULL,                 -- of the sign-in; a rotation keeps it
    used_at    timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,                 -- whatever happens
    FOREIGN KEY (account_id, user_id) REFERENCES members ON DELETE CASCADE
);
CREATE INDEX sessions_by_user ON sessions (user_id);
CREATE INDEX sessions_by_member ON sessions (account_id, user_id);

CREATE TABLE single_use_tokens (
    digest     bytea PRIMARY KEY,
    purpose    text NOT NULL,
    user_id    uuid NOT NULL REFERENCES users ON DELETE CASCADE,
    detail     text,                                 -- what the token confirms, such as a new address
    created_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL
);
CREATE INDEX single_use_tokens_by_user ON single_use_tokens (user_id, purpose);

-- Mail of the service itself that is still to be composed and accepted. A token in it is derived from its id.
CREATE TABLE system_mail (
    id         uuid PRIMARY KEY,
    kind       text NOT NULL,
    address    text NOT NULL,
    detail     jsonb NOT NULL,
    attempts   integer NOT NULL DEFAULT 0,
    due_at     timestamptz NOT NULL,
    created_at timestamptz NOT NULL
);
CREATE INDEX system_mail_by_due ON system_mail (due_at);

-- The account that the service itself sends from.
CREATE TABLE platform (
    one        boolean PRIMARY KEY DEFAULT true CHECK (one),  -- there is no second
    account_id uuid NOT NULL REFERENCES accounts
);

-- Proofs of work that have been used for a sign-up; each is good once.
CREATE TABLE spent_challenges (
    digest     bytea PRIMARY KEY,
    expires_at timestamptz NOT NULL
);
CREATE INDEX spent_challenges_by_end ON spent_challenges (expires_at);
