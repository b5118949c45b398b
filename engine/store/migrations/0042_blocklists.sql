-- DNS blocklists: which lists answer correctly, and which of them name a source address or a customer's domain.

-- A list as the settings of a worker name it. `name` is the label that people see: the DNS zone itself may hold the key
-- of a subscription.
CREATE TABLE blocklist_zones (
    name        text NOT NULL,
    family      text NOT NULL CHECK (family IN ('ipv4', 'ipv6', 'domain')),
    trusted     boolean NOT NULL,                    -- its test points (RFC 5782) gave the right answers
    detail      text NOT NULL,                       -- what the test found, in words
    tested_at   timestamptz NOT NULL,
    known_until timestamptz NOT NULL,                -- dropped after this: no settings name it any more
    PRIMARY KEY (name, family)
);

-- The addresses that mail leaves from, as the workers of all hosts report them.
CREATE TABLE blocklist_addresses (
    ip             text PRIMARY KEY,
    reported_until timestamptz NOT NULL,             -- dropped after this: no host sends from it any more
    check_at       timestamptz NOT NULL DEFAULT '-infinity',
    checked_at     timestamptz,                      -- the last check with an answer that can be trusted
    measured_until timestamptz NOT NULL DEFAULT '-infinity'  -- until then that check says how it stands
);

-- Verified domains are checked in the same way; these columns do for them what those of blocklist_addresses do.
ALTER TABLE domains
    ADD COLUMN blocklist_check_at timestamptz NOT NULL DEFAULT '-infinity',
    ADD COLUMN blocklist_measured_until timestamptz NOT NULL DEFAULT '-infinity';
CREATE INDEX domains_by_blocklist_check ON domains (blocklist_check_at)
    WHERE status = 'verified' AND deleted_at IS NULL;

-- A listing begins and ends with answers that can be trusted; silence and wrong answers leave it as it is.
CREATE TABLE blocklist_listings (
    kind         text NOT NULL CHECK (kind IN ('ip', 'domain')),
    target       text NOT NULL,
    zone         text NOT NULL,                      -- blocklist_zones.name
    answer       text NOT NULL,                      -- the latest addresses that the list answered with
    listed_since timestamptz NOT NULL,
    last_seen    timestamptz NOT NULL,
    ended_at     timestamptz
);
CREATE UNIQUE INDEX blocklist_listings_open ON blocklist_listings (kind, target, zone) WHERE ended_at IS NULL;
CREATE INDEX blocklist_listings_by_target ON blocklist_listings (target);
CREATE INDEX blocklist_listings_ended ON blocklist_listings (ended_at) WHERE ended_at IS NOT NULL;
