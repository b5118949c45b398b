-- Erasure by recipient: requests, the digests of erased addresses that stay suppressed, and log entries without payload.
-- Additive: processes of the version before never write a null payload, and read one as an event without content.

ALTER TABLE events ALTER COLUMN payload DROP NOT NULL;

CREATE FUNCTION readable_payload(type text, payload text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN coalesce(payload, '{"type":"' || type || '","messageId":null,"detail":{"erased":true}}');

CREATE TABLE erasures (
    id           uuid PRIMARY KEY,                   -- UUIDv7, made under the lock of the account's head: orders lists
    account_id   uuid NOT NULL REFERENCES accounts,
    address      text,                               -- canonical; null once the erasure is completed
    state        text NOT NULL DEFAULT 'queued' CHECK (state IN ('queued', 'running', 'completed')),
    counts       jsonb NOT NULL DEFAULT '{}',        -- erased rows by kind, added in the transaction of each batch
    named_in     bigint[] NOT NULL DEFAULT '{}',     -- seqs of its `erasure.completed` events
    log_seq      bigint NOT NULL DEFAULT 0,          -- the log is erased up to here
    requested_at timestamptz NOT NULL,
    started_at   timestamptz,
    finished_at  timestamptz
) WITH (fillfactor = 70);
CREATE INDEX erasures_by_account ON erasures (account_id, id);
CREATE INDEX erasures_open ON erasures (id) WHERE state <> 'completed';
CREATE UNIQUE INDEX erasures_of_address ON erasures (account_id, address) WHERE address IS NOT NULL;

CREATE TABLE erasure_keys (
    account_id uuid PRIMARY KEY REFERENCES accounts,
    key        bytea NOT NULL                        -- 32 random bytes; without it the digests can't be tested
);

CREATE TABLE erased_suppressions (
    account_id uuid NOT NULL REFERENCES accounts,
    digest     bytea NOT NULL,                       -- address_digest(key, canonical address)
    reason     text NOT NULL CHECK (reason IN ('bounce', 'complaint', 'manual', 'unsubscribe')),
    created_at timestamptz NOT NULL,
    PRIMARY KEY (account_id, digest)
);

-- Two rounds, so that a digest can't be extended to that of a longer address.
CREATE FUNCTION address_digest(key bytea, address text) RETURNS bytea LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN sha256(key || sha256(key || convert_to(address, 'UTF8')));
