-- Domains that are checked again and again, removed without orphaning queued mail, and whose keys rotate.

ALTER TABLE domains
    ADD COLUMN deleted_at timestamptz,                               -- removed; the keys stay while mail may need them
    ADD COLUMN vouched boolean NOT NULL DEFAULT false,               -- the operator's word stands in for DNS
    ADD COLUMN misses smallint NOT NULL DEFAULT 0,                   -- checks in a row that missed a required record
    ADD COLUMN check_at timestamptz DEFAULT now() + interval '1 minute',  -- null: not checked in the background
    ADD COLUMN findings jsonb;                                       -- what the last check found, see engine.areas.domains.records

UPDATE domains SET check_at = now() + random() * interval '6 hours';

ALTER TABLE domains DROP CONSTRAINT domains_account_id_name_key;
CREATE UNIQUE INDEX domains_by_account ON domains (account_id, name) WHERE deleted_at IS NULL;

-- One account at most holds a name as verified: the oldest proof stays.
UPDATE domains d SET status = 'failed'
WHERE status = 'verified'
  AND EXISTS (SELECT 1 FROM domains o WHERE o.name = d.name AND o.status = 'verified'
              AND (coalesce(o.verified_at, o.created_at), o.id) < (coalesce(d.verified_at, d.created_at), d.id));
CREATE UNIQUE INDEX domains_held ON domains (name) WHERE status = 'verified';

CREATE INDEX domains_by_check ON domains (check_at) WHERE check_at IS NOT NULL AND deleted_at IS NULL;
CREATE INDEX domains_deleted ON domains (deleted_at) WHERE deleted_at IS NOT NULL;

-- standby: published ahead, asked for by nobody yet; pending: signs as soon as its record is found;
-- retiring: signs no more, its record stays for the messages on their way until retire_at.
ALTER TABLE domain_keys ADD COLUMN retire_at timestamptz;
ALTER TABLE domain_keys DROP CONSTRAINT domain_keys_status_check;
ALTER TABLE domain_keys ADD CONSTRAINT domain_keys_status_check
    CHECK (status IN ('standby', 'pending', 'active', 'retiring', 'retired'));
CREATE INDEX domain_keys_retiring ON domain_keys (retire_at) WHERE status = 'retiring';

-- What lets the service publish in an account's DNS zones at Cloudflare.
CREATE TABLE cloudflare_tokens (
    account_id   uuid PRIMARY KEY REFERENCES accounts,
    sealed_token bytea NOT NULL,                                     -- AES-256-GCM under a key derived from the pepper
    created_at   timestamptz NOT NULL DEFAULT now()
);
