-- One-time codes. Neither the destination nor the code is stored: only digests under keys derived from the pepper.

CREATE TABLE verifications (
    id              uuid PRIMARY KEY,
    account_id      uuid NOT NULL REFERENCES accounts,
    destination     bytea NOT NULL,                  -- keyed digest of account and canonical address
    code            bytea NOT NULL,                  -- keyed digest of id and latest code
    status          text NOT NULL DEFAULT 'pending'
                    CHECK (status IN ('pending', 'approved', 'expired', 'cancelled', 'exhausted')),
    attempts_left   smallint NOT NULL CHECK (attempts_left >= 0),
    code_length     smallint NOT NULL,
    codes_sent      smallint NOT NULL,
    message_id      uuid NOT NULL,                   -- of the latest code
    sender          text NOT NULL,                   -- From, for codes sent again; as are the next five
    stream          text NOT NULL,
    tags            jsonb NOT NULL,
    metadata        jsonb NOT NULL,
    locale          text NOT NULL,
    has_link        boolean NOT NULL,                -- the mail also holds a link that approves
    idempotency_key text,
    created_at      timestamptz NOT NULL,
    expires_at      timestamptz NOT NULL,
    finished_at     timestamptz,
    announced       boolean NOT NULL DEFAULT false,  -- its `verification.finished` event is written
    due_at          timestamptz NOT NULL             -- when a worker looks: at its end, then 48 hours after that
) WITH (fillfactor = 70);
CREATE INDEX verifications_by_destination ON verifications (account_id, destination) WHERE status = 'pending';
CREATE INDEX verifications_due ON verifications (due_at);
CREATE UNIQUE INDEX verifications_by_key ON verifications (account_id, idempotency_key) WHERE idempotency_key IS NOT NULL;

-- What limits the codes to one destination of an account; a row goes when nothing in it counts any more.
CREATE TABLE verification_destinations (
    account_id   uuid NOT NULL REFERENCES accounts,
    destination  bytea NOT NULL,
    sent_at      timestamptz[] NOT NULL DEFAULT '{}', -- of the codes of the last hour
    exhausted_at timestamptz[] NOT NULL DEFAULT '{}', -- of verifications since the last approved one
    locked_until timestamptz,
    forget_at    timestamptz NOT NULL,
    PRIMARY KEY (account_id, destination)
) WITH (fillfactor = 70);
CREATE INDEX verification_destinations_forget ON verification_destinations (forget_at);

-- Branding of the built-in mail.
CREATE TABLE verification_settings (
    account_id  uuid PRIMARY KEY REFERENCES accounts,
    brand_name  text,
    code_length smallint,
    logo        bytea,                               -- re-encoded, as served
    logo_token  text UNIQUE,                         -- of its public URL; new with every upload
    logo_type   text,
    logo_width  integer,
    logo_height integer
);
ALTER TABLE verification_settings ALTER COLUMN logo SET STORAGE EXTERNAL;

-- Account events that webhooks may subscribe to; all others stay inside the account log.
CREATE OR REPLACE FUNCTION webhook_wants(event_types text[], type text) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN (position('.' IN type) = 0 OR type IN (
           'alert.ended', 'alert.fired', 'broadcast.finished', 'broadcast.paused', 'contact.unsubscribed', 'domain.failed',
           'domain.verified', 'suppression.added', 'verification.finished'))
   AND (cardinality(event_types) = 0 OR type = ANY (event_types));
