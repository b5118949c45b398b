-- The live map: which domains are split, where shards are to be, what each of them and each process is busy with.

-- A domain's mail lies in so many shards. One part by the operator's word keeps the rule from splitting it.
CREATE TABLE shard_splits (
    domain     text PRIMARY KEY,                     -- as the queue's rows name it
    parts      smallint NOT NULL CHECK (parts >= 1),
    whose      text NOT NULL CHECK (whose IN ('operator', 'rule')),
    why        text NOT NULL,
    changed_at timestamptz NOT NULL DEFAULT now()
);

-- Shards in which rows of a domain may lie that belong elsewhere since its split has changed.
CREATE TABLE shard_rehomings (
    shard    integer NOT NULL,
    domain   text NOT NULL,
    began_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    moved    bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (shard, domain)
);

-- The operator's word where a shard is to be: with a member, or anywhere on a node.
CREATE TABLE shard_pins (
    shard      integer PRIMARY KEY,
    target     text NOT NULL,                        -- a member's name, or a node's
    why        text NOT NULL DEFAULT '',
    changed_at timestamptz NOT NULL DEFAULT now()
);

-- The operator's word about a member or a node: how much it is to carry, or that it is to carry nothing.
CREATE TABLE shard_places (
    name       text PRIMARY KEY,
    weight     real NOT NULL DEFAULT 1 CHECK (weight > 0),
    draining   boolean NOT NULL DEFAULT false,
    why        text NOT NULL DEFAULT '',
    changed_at timestamptz NOT NULL DEFAULT now()
);

-- The loads that the map reckons with: those of one moment, until they are too wrong. One row, or none: then shards
-- are counted.
CREATE TABLE shard_plan (
    one        boolean PRIMARY KEY DEFAULT true CHECK (one),
    loads      jsonb NOT NULL,                       -- messages a second by shard
    whose      text NOT NULL CHECK (whose IN ('operator', 'rule')),
    why        text NOT NULL,
    changed_at timestamptz NOT NULL DEFAULT now()
);

-- How long a domain, or the balance of all members (the empty domain), has been beyond the bounds of a rule.
CREATE TABLE shard_watch (
    domain     text PRIMARY KEY,
    over_since timestamptz,
    under_since timestamptz
);

INSERT INTO stamps (kind) VALUES ('splits'), ('shards');

-- What owners measure, and who is there. A crash may empty these: the next seconds fill them again.
CREATE UNLOGGED TABLE shard_rates (
    shard       integer PRIMARY KEY,
    process     text NOT NULL,
    rate        real NOT NULL,                       -- deliveries settled a second, over the last minute
    measured_at timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 50);

CREATE UNLOGGED TABLE domain_rates (
    domain      text NOT NULL,
    process     text NOT NULL,
    rate        real NOT NULL,
    measured_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (domain, process)
) WITH (fillfactor = 50);

CREATE UNLOGGED TABLE processes (
    id           uuid PRIMARY KEY,                   -- of one life of a process
    host         text NOT NULL,
    name         text NOT NULL,
    kind         text NOT NULL,
    version      text NOT NULL,
    pid          integer NOT NULL,
    since        timestamptz NOT NULL,
    seen_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    shards       integer,
    in_hand      integer,
    rate         real,
    memory_bytes bigint
) WITH (fillfactor = 50);
