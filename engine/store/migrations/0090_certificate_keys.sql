-- The keys that sign delivery certificates, shared by all hosts of the installation. A retired key keeps its public half,
-- so that certificates verify for ever, and loses its private half.
CREATE TABLE certificate_keys (
    kid        text PRIMARY KEY,                     -- the thumbprint of the public key (RFC 7638)
    public_key bytea NOT NULL CHECK (length(public_key) = 32),  -- Ed25519
    sealed_key bytea,                                -- AES-256-GCM under a key derived from the pepper; null once retired
    made_at    timestamptz NOT NULL,
    retired_at timestamptz,
    CHECK ((sealed_key IS NULL) = (retired_at IS NOT NULL))
);
CREATE UNIQUE INDEX certificate_keys_active ON certificate_keys ((true)) WHERE retired_at IS NULL;
