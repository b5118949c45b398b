-- The durable records: accounts and their access, the message tables, the account log, the queue.
-- Floor: PostgreSQL 15 without pgcrypto or uuid-ossp. Ids and digests are made in Python.

CREATE TABLE accounts (
    id          uuid PRIMARY KEY,
    name        text NOT NULL,
    plan        text NOT NULL,
    status      text NOT NULL DEFAULT 'active' CHECK (status IN ('active', 'suspended', 'closing')),
    parent_id   uuid REFERENCES accounts,
    daily_cap   integer CHECK (daily_cap >= 0),      -- an agreement's cap in place of the ladder's
    monthly_cap integer CHECK (monthly_cap >= 0),    -- an agreement's allowance in place of the plan's
    created_at  timestamptz NOT NULL DEFAULT now()
);

-- The one row a send locks. Kept apart from accounts so that its churn stays in a page or two (HOT updates).
CREATE TABLE account_heads (
    account_id         uuid PRIMARY KEY REFERENCES accounts,
    seq                bigint NOT NULL DEFAULT 0,
    hash               bytea NOT NULL DEFAULT decode(repeat('00', 32), 'hex'),
    purged_through_seq bigint NOT NULL DEFAULT 0,
    purged_hash        bytea NOT NULL DEFAULT decode(repeat('00', 32), 'hex'),
    rung               smallint NOT NULL DEFAULT 0,
    day                date NOT NULL DEFAULT '1970-01-01',
    sent_today         integer NOT NULL DEFAULT 0,
    month              date NOT NULL DEFAULT '1970-01-01',
    sent_this_month    integer NOT NULL DEFAULT 0
) WITH (fillfactor = 30);

-- What became of an account's mail by UTC day of the outcome: the ladder's review and the statistics read it.
CREATE TABLE account_days (
    account_id uuid NOT NULL REFERENCES accounts,
    day        date NOT NULL,
    delivered  integer NOT NULL DEFAULT 0,
    bounced    integer NOT NULL DEFAULT 0,
    complained integer NOT NULL DEFAULT 0,
    failed     integer NOT NULL DEFAULT 0,
    PRIMARY KEY (account_id, day)
) WITH (fillfactor = 50);

CREATE TABLE users (
    id                uuid PRIMARY KEY,
    email             text NOT NULL UNIQUE,
    password_hash     text,
    name              text NOT NULL DEFAULT '',
    email_verified_at timestamptz,
    created_at        timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE members (
    account_id uuid NOT NULL REFERENCES accounts,
    user_id    uuid NOT NULL REFERENCES users,
    role       text NOT NULL CHECK (role IN ('member', 'admin', 'owner')),
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (account_id, user_id)
);

CREATE TABLE api_keys (
    id           uuid PRIMARY KEY,
    key_id       text NOT NULL UNIQUE,               -- the 12 characters in clear
    account_id   uuid NOT NULL REFERENCES accounts,
    name         text NOT NULL,
    digest       bytea NOT NULL,                     -- HMAC-SHA-256 of the secret under the pepper
    scopes       text[] NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT now(),
    expires_at   timestamptz,
    last_used_at timestamptz,
    revoked_at   timestamptz
);
CREATE INDEX api_keys_by_account ON api_keys (account_id, id);

CREATE TABLE domains (
    id          uuid PRIMARY KEY,
    account_id  uuid NOT NULL REFERENCES accounts,
    name        text NOT NULL,                       -- A-label, lower case
    status      text NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'verified', 'failed')),
    created_at  timestamptz NOT NULL DEFAULT now(),
    verified_at timestamptz,
    checked_at  timestamptz,
    UNIQUE (account_id, name)
);
CREATE INDEX domains_by_name ON domains (name);

CREATE TABLE domain_keys (
    domain_id   uuid NOT NULL REFERENCES domains ON DELETE CASCADE,
    selector    text NOT NULL,
    algorithm   text NOT NULL CHECK (algorithm IN ('rsa-sha256', 'ed25519-sha256')),
    sealed_key  bytea NOT NULL,                      -- PKCS #8 DER, AES-256-GCM under a key derived from the pepper
    public_txt  text NOT NULL,
    status      text NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'active', 'retired')),
    created_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (domain_id, selector)
);

CREATE TABLE streams (
    account_id uuid NOT NULL REFERENCES accounts,
    slug       text NOT NULL,
    name       text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (account_id, slug)
);

CREATE TABLE suppressions (
    account_id uuid NOT NULL REFERENCES accounts,
    address    text NOT NULL,                        -- canonical form, see engine.mail.address
    reason     text NOT NULL CHECK (reason IN ('bounce', 'complaint', 'manual', 'unsubscribe')),
    message_id uuid,                                 -- the message that caused it
    detail     text,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (account_id, address)
);

-- Ids are UUIDv7, so a range of ids is a range of time: a fetch by id prunes to one partition.
CREATE TABLE messages (
    id               uuid NOT NULL,
    account_id       uuid NOT NULL,
    status           text NOT NULL,
    source           text NOT NULL,
    sender           text NOT NULL,
    from_domain      text NOT NULL,
    reply_to         text,
    subject          text NOT NULL,
    stream           text NOT NULL,
    template         text,
    template_version integer,
    tags             jsonb,
    metadata         jsonb,
    attachments      jsonb,
    recipient_count  smallint NOT NULL,
    size_bytes       integer NOT NULL,
    scheduled_at     timestamptz,
    delivered_at     timestamptz,
    PRIMARY KEY (id)
) PARTITION BY RANGE (id);
CREATE INDEX messages_by_account ON messages (account_id, id);

-- The composed message without its signature: text, html and attachments are read back out of it.
CREATE TABLE message_bodies (
    message_id uuid NOT NULL,
    mime       bytea NOT NULL,
    smtputf8   boolean NOT NULL,
    PRIMARY KEY (message_id)
) PARTITION BY RANGE (message_id);
ALTER TABLE message_bodies ALTER COLUMN mime SET STORAGE EXTERNAL;

CREATE TABLE recipients (
    message_id      uuid NOT NULL,
    n               smallint NOT NULL,
    account_id      uuid NOT NULL,
    kind            text NOT NULL,
    address         text NOT NULL,
    name            text,
    status          text NOT NULL,
    attempts        smallint NOT NULL DEFAULT 0,
    last_response   text,
    next_attempt_at timestamptz,
    PRIMARY KEY (message_id, n)
) PARTITION BY RANGE (message_id);
CREATE INDEX recipients_by_address ON recipients (account_id, lower(address), message_id);

-- The account log. hash covers the hash of the row before it, see engine.ledger.log.
CREATE TABLE events (
    id          uuid NOT NULL,
    account_id  uuid NOT NULL,
    seq         bigint NOT NULL,
    type        text NOT NULL,
    message_id  uuid,
    occurred_at timestamptz NOT NULL,
    payload     text NOT NULL,
    hash        bytea NOT NULL
) PARTITION BY RANGE (id);
CREATE INDEX events_by_seq ON events (account_id, seq);
CREATE INDEX events_by_message ON events (message_id) WHERE message_id IS NOT NULL;

CREATE TABLE idempotency (
    account_id     uuid NOT NULL,
    key            text NOT NULL,
    message_id     uuid NOT NULL,
    request_digest bytea NOT NULL,
    PRIMARY KEY (account_id, key)
);

-- Pending deliveries only: a row goes when its last recipient is settled.
CREATE TABLE queue (
    message_id  uuid NOT NULL,
    domain      text NOT NULL,
    shard       integer NOT NULL,
    account_id  uuid NOT NULL,
    from_domain text NOT NULL,
    recipients  jsonb NOT NULL,                      -- [[n, address], …] still to settle
    total       smallint NOT NULL,                   -- recipients of the whole message
    due_at      timestamptz NOT NULL,
    attempts    smallint NOT NULL DEFAULT 0,
    signature   bytea,                               -- the DKIM-Signature fields of the first attempt
    waiting     text,                                -- why it waits, where that is not a retry
    PRIMARY KEY (message_id, domain)
) WITH (
    fillfactor = 80,
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_insert_scale_factor = 1, autovacuum_analyze_scale_factor = 0.2,
    autovacuum_vacuum_cost_delay = 1
);
CREATE INDEX queue_by_due ON queue (shard, due_at);

-- The platform's daily ceiling, leased to processes in chunks so that it is no global lock.
CREATE TABLE platform_days (
    day    date PRIMARY KEY,
    leased bigint NOT NULL DEFAULT 0
);

-- One row per cached kind; a change adds one, and every process re-reads within half a second.
CREATE TABLE stamps (
    kind    text PRIMARY KEY,
    version bigint NOT NULL DEFAULT 0
);
INSERT INTO stamps (kind) VALUES ('keys'), ('domains'), ('streams');

-- Who delivers: members hold leases by heartbeat; deleting a member's row fences it.
CREATE TABLE shard_members (
    id           uuid PRIMARY KEY,
    name         text NOT NULL,
    weight       real NOT NULL DEFAULT 1,
    started_at   timestamptz NOT NULL DEFAULT now(),
    expires_at   timestamptz NOT NULL
);

CREATE TABLE shard_owners (
    shard integer PRIMARY KEY,
    owner uuid,                                      -- a shard_members id; free when that row is gone
    epoch bigint NOT NULL DEFAULT 0
);
