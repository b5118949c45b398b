-- Invitations to a team, what an API key may be limited to, and enquiries from the contact form.

-- Pending ones: an accepted or revoked invitation is gone, and so is one that another to its address has replaced.
CREATE TABLE invites (
    id         uuid PRIMARY KEY,
    account_id uuid NOT NULL REFERENCES accounts,
    email      text NOT NULL,                        -- as people are known by it
    role       text NOT NULL CHECK (role IN ('member', 'admin', 'owner')),
    digest     bytea NOT NULL UNIQUE,                -- of the token that was mailed
    invited_by uuid REFERENCES users ON DELETE SET NULL,
    created_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,
    UNIQUE (account_id, email)
);
CREATE INDEX invites_by_expiry ON invites (expires_at);

-- What a key may send from, and from where; null: whatever its account may.
ALTER TABLE api_keys
    ADD COLUMN domains  text[] CHECK (cardinality(domains) > 0),
    ADD COLUMN streams  text[] CHECK (cardinality(streams) > 0),
    ADD COLUMN networks text[] CHECK (cardinality(networks) > 0);

-- Enquiries that the platform account's own web site has passed on.
CREATE TABLE leads (
    id         uuid PRIMARY KEY,
    account_id uuid NOT NULL REFERENCES accounts,
    name       text,
    email      text NOT NULL,
    company    text,
    message    text NOT NULL,
    created_at timestamptz NOT NULL
);
CREATE INDEX leads_by_account ON leads (account_id, id);
