-- Webhook endpoints, and what is still to be posted to them.

CREATE TABLE webhooks (
    id              uuid PRIMARY KEY,
    account_id      uuid NOT NULL REFERENCES accounts,
    url             text NOT NULL,
    event_types     text[] NOT NULL DEFAULT '{}',    -- empty: all
    status          text NOT NULL DEFAULT 'active' CHECK (status IN ('active', 'disabled', 'deleted')),
    sealed_secret   bytea NOT NULL,                  -- AES-256-GCM under a key derived from the pepper
    sealed_previous bytea,                           -- after a rotation the former secret signs beside it
    previous_until  timestamptz,
    created_at      timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX webhooks_by_account ON webhooks (account_id, id) WHERE status <> 'deleted';

-- Pending posts only: a row goes when its endpoint has answered or its ladder has ended. The event holds the payload.
CREATE TABLE webhook_queue (
    webhook_id uuid NOT NULL,
    event_id   uuid NOT NULL,
    account_id uuid NOT NULL,
    due_at     timestamptz NOT NULL,
    attempts   smallint NOT NULL DEFAULT 0,
    PRIMARY KEY (webhook_id, event_id)
) WITH (fillfactor = 80);
CREATE INDEX webhook_queue_by_due ON webhook_queue (webhook_id, due_at);

-- Whether an endpoint with these event types hears of an event: account events stay inside the account log but for
-- the few that are promised. A test event goes to the endpoint under test alone.
CREATE FUNCTION webhook_wants(event_types text[], type text) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN (position('.' IN type) = 0
        OR type IN ('inbound.received', 'alert.fired', 'domain.verified', 'domain.failed', 'suppression.added'))
   AND (cardinality(event_types) = 0 OR type = ANY (event_types));
