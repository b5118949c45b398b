-- Signing in with an identity provider: who is who there, and the steps of sign-ins under way.

CREATE TABLE identities (
    id         uuid PRIMARY KEY,
    user_id    uuid NOT NULL REFERENCES users ON DELETE CASCADE,
    issuer     text NOT NULL,
    subject    text NOT NULL,                        -- who this is at the issuer; never given to somebody else there
    created_at timestamptz NOT NULL,
    used_at    timestamptz NOT NULL,
    UNIQUE (issuer, subject),
    UNIQUE (user_id, issuer)                         -- a second subject with the same address is another person there
);

-- What we have handed out and expect back, once. The value handed out is derived from the id under the pepper, so
-- that nothing here can be presented by whoever reads this table.
CREATE TABLE identity_steps (
    id           uuid PRIMARY KEY,
    kind         text NOT NULL,                      -- engine.areas.identity.types.Step
    browser      bytea,                              -- SHA-256 of the secret in the browser's cookie; null: bound otherwise
    user_id      uuid REFERENCES users ON DELETE CASCADE,
    issuer       text,                               -- with subject: to be linked to the person when the step is done
    subject      text,
    return_to    text,                               -- path of ours
    app_redirect text,                               -- of an app, out of the settings' list
    challenge    text,                               -- S256 of the app's verifier (RFC 7636)
    tries        integer NOT NULL DEFAULT 0,
    expires_at   timestamptz NOT NULL
);
CREATE INDEX identity_steps_by_expiry ON identity_steps (expires_at);
CREATE INDEX identity_steps_by_user ON identity_steps (user_id) WHERE user_id IS NOT NULL;
