-- Source addresses: pools by stream, warm-up by day and provider, and where an address is refused.

-- What mail may leave from; addresses that a host does not have are left out there.
CREATE TABLE source_pools (
    name       text PRIMARY KEY,
    members    jsonb NOT NULL,                       -- [{"ip": …, "weight": …}]
    changed_at timestamptz NOT NULL DEFAULT now()
);

-- Which pool a stream's mail leaves from; what no line speaks of leaves from any address.
CREATE TABLE source_assignments (
    stream     text NOT NULL,                        -- a stream's id, 'broadcast', 'verification', or '*'
    account_id uuid REFERENCES accounts ON DELETE CASCADE,  -- null: every account's
    pool       text NOT NULL REFERENCES source_pools,
    changed_at timestamptz NOT NULL DEFAULT now(),
    UNIQUE NULLS NOT DISTINCT (stream, account_id)
);

CREATE TABLE source_warmups (
    ip         text PRIMARY KEY,
    started_on date NOT NULL,                        -- UTC; its first day of sending
    plan       bigint[] NOT NULL,                    -- messages a day to one provider, from the first day on
    changed_at timestamptz NOT NULL DEFAULT now()
);

-- How much of a day's allowance is taken. `granted` is what the latest asker got of it.
CREATE TABLE source_counts (
    day     date NOT NULL,                           -- UTC
    ip      text NOT NULL,
    site    text NOT NULL,                           -- a provider or a set of mail servers, as windows name it
    used    bigint NOT NULL,
    granted bigint NOT NULL,
    PRIMARY KEY (day, ip, site)
) WITH (fillfactor = 50);

-- Where an address is refused for what it is: it is spared there until then. Over once `rests` is 0.
CREATE TABLE source_rests (
    ip         text NOT NULL,
    site       text NOT NULL,
    until      timestamptz NOT NULL,
    rests      integer NOT NULL,                     -- in a row
    said       text NOT NULL,                        -- the answer
    changed_at timestamptz NOT NULL,
    PRIMARY KEY (ip, site)
);
CREATE INDEX source_rests_by_change ON source_rests (changed_at);

INSERT INTO stamps (kind) VALUES ('sources') ON CONFLICT DO NOTHING;
