-- Contacts, contact lists, their members, segments, and the kept counts of each account.

-- How many contacts, lists and segments an account has. Every transaction that changes them locks this row first, before
-- an account head, so that limits are exact and new rows become visible in the order of their ids.
CREATE TABLE contact_totals (
    account_id uuid PRIMARY KEY,
    contacts   bigint NOT NULL DEFAULT 0,
    lists      integer NOT NULL DEFAULT 0,
    segments   integer NOT NULL DEFAULT 0
);

-- Contacts: one for each canonical address of an account. Ids are UUIDv7, so that lists are ordered by them. No foreign
-- keys: they would double the cost of an import, and all writers hold the lock above.
CREATE TABLE contacts (
    id         uuid PRIMARY KEY,
    account_id uuid NOT NULL,
    address    text NOT NULL,                        -- canonical: what suppressions and other contacts are compared with
    email      text NOT NULL,                        -- as given, the domain in A-labels
    name       text,
    fields     jsonb NOT NULL DEFAULT '{}',          -- strings, numbers and booleans by name
    consent    text NOT NULL CHECK (consent IN ('signed_up', 'customer', 'imported_with_consent')),
    consent_at timestamptz NOT NULL,                 -- when the present consent was recorded first
    consent_by text NOT NULL,                        -- who recorded it: usr_…, key_…, operator, contact
    confirmed  boolean NOT NULL DEFAULT true,        -- false: a confirmation was asked for by mail and is awaited
    search     text NOT NULL,                        -- address and name as searched (engine.areas.contacts.search)
    trigrams   integer[] NOT NULL,                   -- hashes of the account with each three characters of `search`
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    UNIQUE (account_id, address)
) WITH (fillfactor = 90);
CREATE INDEX contacts_by_account ON contacts (account_id, id);
-- The worker merges the pending entries of this index (engine.areas.contacts.jobs), so that imports seldom do.
CREATE INDEX contacts_by_trigram ON contacts USING gin (trigrams) WITH (gin_pending_list_limit = 16384);

CREATE TABLE contact_lists (
    id          uuid PRIMARY KEY,
    account_id  uuid NOT NULL,
    name        text NOT NULL,
    name_key    text NOT NULL,                       -- the name without differences of case
    description text,
    contacts    integer NOT NULL DEFAULT 0,          -- kept by every transaction that changes members
    created_at  timestamptz NOT NULL,
    updated_at  timestamptz NOT NULL,
    UNIQUE (account_id, name_key)
) WITH (fillfactor = 80);
CREATE INDEX contact_lists_by_account ON contact_lists (account_id, id);

CREATE TABLE contact_list_members (
    list_id    uuid NOT NULL,
    contact_id uuid NOT NULL,
    account_id uuid NOT NULL,
    added_at   timestamptz NOT NULL,
    PRIMARY KEY (list_id, contact_id)
);
CREATE INDEX contact_list_members_by_contact ON contact_list_members (contact_id);

-- Whether a broadcast of account $1 that waits to start names list $2; such a list can't be deleted. The migration that
-- adds broadcasts replaces it.
CREATE FUNCTION list_is_awaited(uuid, uuid) RETURNS boolean LANGUAGE sql STABLE AS 'SELECT false';

-- Segments: stored filters of contacts (engine.areas.contacts.segment_rules).
CREATE TABLE contact_segments (
    id          uuid PRIMARY KEY,
    account_id  uuid NOT NULL,
    name        text NOT NULL,
    name_key    text NOT NULL,
    description text,
    filter      jsonb NOT NULL,
    created_at  timestamptz NOT NULL,
    updated_at  timestamptz NOT NULL,
    UNIQUE (account_id, name_key)
);
CREATE INDEX contact_segments_by_account ON contact_segments (account_id, id);

-- Whether a broadcast of account $1 that waits to start names segment $2, as above.
CREATE FUNCTION segment_is_awaited(uuid, uuid) RETURNS boolean LANGUAGE sql STABLE AS 'SELECT false';

-- Links of double opt-in mail, at most one a contact. Another mail replaces the id, so that only its link works.
CREATE TABLE contact_confirmations (
    id           uuid PRIMARY KEY,                   -- in the link (engine.mail.unsubscribe_token)
    account_id   uuid NOT NULL,
    contact_id   uuid NOT NULL UNIQUE,
    sender       text NOT NULL,                      -- who asks, as the page shows it
    mails        smallint NOT NULL DEFAULT 1,
    mailed_at    timestamptz NOT NULL,
    expires_at   timestamptz NOT NULL,
    confirmed_at timestamptz
);
CREATE INDEX contact_confirmations_by_expiry ON contact_confirmations (expires_at);
