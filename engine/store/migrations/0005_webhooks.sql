-- Webhook endpoints, what is still to be posted to them, and what their last attempts brought.

CREATE TABLE webhooks (
    id              uuid PRIMARY KEY,
    account_id      uuid NOT NULL REFERENCES accounts,
    url             text NOT NULL,
    event_types     text[] NOT NULL DEFAULT '{}',    -- empty: all
    status          text NOT NULL DEFAULT 'active' CHECK (status IN ('active', 'disabled', 'deleted')),
    sealed_secret   bytea NOT NULL,                  -- AES-256-GCM under a key derived from the pepper
    sealed_previous bytea,                           -- after a rotation the former secret signs beside it
    previous_until  timestamptz,
    created_at      timestamptz NOT NULL DEFAULT now(),
    deleted_at      timestamptz
);
CREATE INDEX webhooks_by_account ON webhooks (account_id, id) WHERE status <> 'deleted';

-- Pending posts only: a row goes when its endpoint has answered or its ladder has ended. The event holds the payload.
CREATE TABLE webhook_queue (
    webhook_id   uuid NOT NULL,
    event_id     uuid NOT NULL,
    account_id   uuid NOT NULL,
    seq          bigint NOT NULL,                    -- with the account: where the event is found
    due_at       timestamptz NOT NULL,
    leased_until timestamptz,                        -- a worker has it in hand until then
    attempts     integer NOT NULL DEFAULT 0,         -- made and recorded, over all ladders
    ladder_from  integer NOT NULL DEFAULT 0,         -- of them, made before this ladder began (a replay begins another)
    PRIMARY KEY (webhook_id, event_id)
) WITH (
    fillfactor = 80,
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_insert_scale_factor = 1, autovacuum_analyze_scale_factor = 0.2,
    autovacuum_vacuum_cost_delay = 1
);
CREATE INDEX webhook_queue_by_due ON webhook_queue (webhook_id, due_at, seq);

-- Attempts of the last weeks, kept by when they ended (a UUIDv7), so that old ones go a whole partition at a time.
CREATE TABLE webhook_attempts (
    id           uuid NOT NULL,
    webhook_id   uuid NOT NULL,
    event_id     uuid NOT NULL,
    seq          bigint NOT NULL,
    attempt      integer NOT NULL,
    started_at   timestamptz NOT NULL,
    milliseconds integer,                            -- null: nothing was posted, the delivery only ended
    delivered    boolean NOT NULL,
    status_code  smallint,
    answer       text,
    error        text
) PARTITION BY RANGE (id);
CREATE INDEX webhook_attempts_by_event ON webhook_attempts (webhook_id, event_id);

-- Whether an endpoint with these event types hears of an event: account events stay inside the account log but for
-- the few that are promised. A test event goes to the endpoint under test alone.
CREATE FUNCTION webhook_wants(event_types text[], type text) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN (position('.' IN type) = 0
        OR type IN ('inbound.received', 'alert.fired', 'domain.verified', 'domain.failed', 'suppression.added'))
   AND (cardinality(event_types) = 0 OR type = ANY (event_types));
