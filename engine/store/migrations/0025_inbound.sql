-- Inbound mail: claimed addresses, routes, received messages and their bytes, monthly counts.

-- The label of each account's managed receiving domain, `<label>.in.<mail host>`: random, so that it can't be guessed.
CREATE TABLE receiving_labels (
    account_id uuid PRIMARY KEY REFERENCES accounts,
    label      text NOT NULL UNIQUE,
    opened_at  timestamptz                           -- of the first mail to it, which claims its catch-all address
);
CREATE FUNCTION give_receiving_label() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO receiving_labels (account_id, label)
    VALUES (NEW.id, 'r' || substr(replace(gen_random_uuid()::text, '-', ''), 1, 11))
    ON CONFLICT DO NOTHING;
    RETURN NULL;
END $$;
CREATE TRIGGER receiving_label AFTER INSERT ON accounts FOR EACH ROW EXECUTE FUNCTION give_receiving_label();
INSERT INTO receiving_labels (account_id, label)
SELECT id, 'r' || substr(replace(gen_random_uuid()::text, '-', ''), 1, 11) FROM accounts;

-- The domain that receives mail under a name: the one that was verified last, also after its records have gone, until it
-- is removed or another account verifies the name.
ALTER TABLE domains ADD COLUMN receives_since timestamptz;
UPDATE domains SET receives_since = coalesce(verified_at, created_at) WHERE status = 'verified';
CREATE UNIQUE INDEX domains_receiving ON domains (name) WHERE receives_since IS NOT NULL;
CREATE FUNCTION take_over_receiving() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE domains SET receives_since = NULL
    WHERE name = NEW.name AND id <> NEW.id AND receives_since IS NOT NULL;
    NEW.receives_since := clock_timestamp();
    RETURN NEW;
END $$;
CREATE TRIGGER receiving_taken_over BEFORE UPDATE OF status ON domains FOR EACH ROW
    WHEN (NEW.status = 'verified' AND OLD.status <> 'verified') EXECUTE FUNCTION take_over_receiving();

-- Claimed addresses. `canonical` is what mail is matched with: lower case, domain in A-labels; `*@domain` catches what
-- nobody claimed under the domain. A name that another account verifies keeps the addresses of the account that lost it,
-- but they get no mail (`domains.receives_since`).
CREATE TABLE inbound_addresses (
    id               uuid PRIMARY KEY,
    account_id       uuid NOT NULL REFERENCES accounts,
    domain_id        uuid REFERENCES domains ON DELETE CASCADE,   -- null: the account's managed receiving domain
    address          text NOT NULL,                  -- as claimed, the domain in A-labels
    canonical        text NOT NULL,
    label            text,
    enabled          boolean NOT NULL DEFAULT true,
    created_at       timestamptz NOT NULL,
    last_received_at timestamptz,
    UNIQUE (account_id, canonical)
) WITH (fillfactor = 80);
CREATE INDEX inbound_addresses_by_canonical ON inbound_addresses (canonical);
CREATE INDEX inbound_addresses_by_domain ON inbound_addresses (domain_id);
CREATE INDEX inbound_addresses_by_account ON inbound_addresses (account_id, id);

-- What happens with mail to an address, or to all claimed addresses of a domain: one target each.
CREATE TABLE inbound_routes (
    id         uuid PRIMARY KEY,
    account_id uuid NOT NULL REFERENCES accounts,
    address_id uuid UNIQUE REFERENCES inbound_addresses ON DELETE CASCADE,
    domain_id  uuid UNIQUE REFERENCES domains ON DELETE CASCADE,
    action     text NOT NULL CHECK (action IN ('mailbox', 'webhook', 'both', 'forward')),
    webhook_id uuid,                                 -- no reference: a deleted endpoint stays named
    include    text[] NOT NULL DEFAULT '{}',         -- bodies in the webhook: text, html, replyText, headers
    forward_to text,
    enabled    boolean NOT NULL DEFAULT true,
    created_at timestamptz NOT NULL,
    CHECK (num_nonnulls(address_id, domain_id) = 1)
);
CREATE INDEX inbound_routes_by_account ON inbound_routes (account_id, id);

-- Whether mail of account $1 may be forwarded to address $2 (canonical): a confirmed address of a member (of the parent's
-- team for a sub-account), or one under a verified domain of the account. PL/pgSQL, so that statements which rarely call
-- it do not plan it.
CREATE FUNCTION may_forward_to(uuid, text) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN EXISTS (SELECT 1 FROM domains d WHERE d.account_id = $1 AND d.name = split_part($2, '@', 2)
                   AND d.status = 'verified' AND d.deleted_at IS NULL)
        OR EXISTS (SELECT 1 FROM users u JOIN members m ON m.user_id = u.id JOIN accounts a ON a.id = $1
                   WHERE u.email = $2 AND u.email_verified_at IS NOT NULL AND m.account_id IN (a.id, a.parent_id));
END $$;

-- Received messages: one row for each claimed address and SMTP transaction. Ids are UUIDv7: a week is a range of ids.
CREATE TABLE inbound_messages (
    id             uuid NOT NULL,
    account_id     uuid NOT NULL,
    address_id     uuid NOT NULL,                    -- no reference: mail outlives its address
    raw_id         uuid NOT NULL,                    -- of inbound_bytes; several messages of one transaction share it
    address        text NOT NULL,                    -- the claimed address as it was
    domain         text NOT NULL,
    recipient      text NOT NULL,                    -- as in RCPT
    tag            text,
    envelope_from  text NOT NULL,
    remote_ip      inet NOT NULL,
    helo           text NOT NULL,
    tls            text,                             -- protocol version, null in clear text
    sender         jsonb,                            -- {"name", "address"}, null when From is missing or unreadable
    reply_to       jsonb,
    "to"           jsonb NOT NULL,
    cc             jsonb NOT NULL,
    subject        text NOT NULL,
    snippet        text NOT NULL,
    sent_at        timestamptz,                      -- the Date field; null when unreadable
    header_message_id text,
    in_reply_to    text,
    replies_to     uuid,                             -- a sent message of this account
    size_bytes     integer NOT NULL,
    read_at        timestamptz,                      -- of the first reading; kept when unmarked
    is_read        boolean NOT NULL DEFAULT false,
    spam_score     real,
    spam_threshold real NOT NULL,
    spam_override  boolean,
    is_spam        boolean GENERATED ALWAYS AS (coalesce(spam_override, spam_score >= spam_threshold, false)) STORED,
    authentication jsonb NOT NULL,
    action         text NOT NULL,
    fallback       boolean NOT NULL DEFAULT false,
    in_mailbox     boolean NOT NULL,                 -- false: routed to webhooks or forwarded only
    attachments    jsonb NOT NULL DEFAULT '[]',      -- [{id, filename, content_type, size_bytes, sha256, cid, scan, signature}]
    warnings       jsonb NOT NULL DEFAULT '[]',
    event_id       uuid,                             -- of its `inbound.received` event: replays post the same delivery id
    PRIMARY KEY (id)
) PARTITION BY RANGE (id);
CREATE INDEX inbound_messages_by_account ON inbound_messages (account_id, id);
CREATE INDEX inbound_messages_by_address ON inbound_messages (address_id, id);
CREATE INDEX inbound_messages_by_sent ON inbound_messages (account_id, replies_to, id) WHERE replies_to IS NOT NULL;
CREATE INDEX inbound_messages_by_raw ON inbound_messages (raw_id);

-- The bytes as they came, in the same week as their messages.
CREATE TABLE inbound_bytes (
    id    uuid NOT NULL,
    bytes bytea NOT NULL,
    PRIMARY KEY (id)
) PARTITION BY RANGE (id);
ALTER TABLE inbound_bytes ALTER COLUMN bytes SET STORAGE EXTERNAL;

-- What was stored in the last 24 hours: a sender that lost our 250 sends the same bytes again, and nothing is stored.
CREATE TABLE inbound_recent (
    digest     bytea NOT NULL,                       -- SHA-256 over envelope sender and bytes
    address_id uuid NOT NULL,
    account_id uuid NOT NULL,
    message_id uuid NOT NULL,
    stored_at  timestamptz NOT NULL,
    PRIMARY KEY (digest, address_id)
) WITH (fillfactor = 90);
CREATE INDEX inbound_recent_by_time ON inbound_recent (stored_at);

-- Exact counts of stored received messages, changed in the transaction that changes them: counting a mailbox of a
-- million rows takes 0.1 s, adding up its handful of rows here does not.
CREATE TABLE inbound_counts (
    account_id uuid NOT NULL REFERENCES accounts,
    address_id uuid NOT NULL,
    domain     text NOT NULL,
    in_mailbox boolean NOT NULL,
    is_spam    boolean NOT NULL,
    is_read    boolean NOT NULL,
    messages   bigint NOT NULL,
    PRIMARY KEY (account_id, address_id, in_mailbox, is_spam, is_read)
) WITH (fillfactor = 50);

-- Monthly counts against plan limits other than sent mail, by UTC month; changed under the lock of the account's head.
-- A sub-account counts on its parent's row.
CREATE TABLE plan_usage (
    account_id uuid NOT NULL REFERENCES accounts,
    resource   text NOT NULL,                        -- received_messages, verifications, address_checks
    month      date NOT NULL,
    used       bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (account_id, resource, month)
) WITH (fillfactor = 50);

INSERT INTO stamps (kind) VALUES ('inbound') ON CONFLICT DO NOTHING;
