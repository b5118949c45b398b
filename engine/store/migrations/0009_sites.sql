-- Shaping: the operator's rules for sites, what each process last saw of a site, and who goes first in the queue.

CREATE TABLE site_rules (
    name       text PRIMARY KEY,                     -- a mail host's name or the end of one, a site, or '*'
    rule       jsonb NOT NULL,                       -- the fields of engine.delivery.sites.Rule that it sets
    why        text NOT NULL DEFAULT '',
    changed_at timestamptz NOT NULL DEFAULT now()
);
INSERT INTO stamps (kind) VALUES ('sites');

-- For the operator's eyes alone: a crash may empty it, the next minutes fill it again.
CREATE UNLOGGED TABLE site_states (
    site       text NOT NULL,
    process    text NOT NULL,
    hosts      text[] NOT NULL,
    state      jsonb NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (site, process)
) WITH (fillfactor = 50);

-- 0 verification codes, 1 transactional mail, 2 other streams, 3 broadcasts.
CREATE FUNCTION mail_priority(source text, stream text) RETURNS smallint LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN (CASE WHEN source = 'verification' THEN 0 WHEN source = 'broadcast' THEN 3 WHEN stream = 'transactional' THEN 1
        ELSE 2 END)::smallint;

ALTER TABLE queue ADD COLUMN priority smallint NOT NULL DEFAULT 1;
-- So that an account with a few rows is found behind another's hundred thousand.
CREATE INDEX queue_by_account ON queue (shard, priority, account_id, due_at);
