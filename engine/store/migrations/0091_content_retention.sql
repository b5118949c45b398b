-- Content that is deleted once its message is final: hours from the last outcome to the deletion, null to keep the
-- content as long as the plan keeps messages.
ALTER TABLE messages ADD COLUMN content_hours smallint;
ALTER TABLE streams ADD COLUMN content_hours smallint CHECK (content_hours BETWEEN 0 AND 720);
ALTER TABLE queue ADD COLUMN forgets boolean NOT NULL DEFAULT false;

-- The key that the content of one such message is encrypted with, itself encrypted with a key derived from the pepper.
-- Deleting the row makes the content unreadable. Rows are few and short-lived, so vacuums are cheap: they remove deleted
-- keys from the table's files within a minute or two.
CREATE TABLE content_keys (
    message_id uuid PRIMARY KEY,
    account_id uuid NOT NULL,
    sealed_key bytea NOT NULL,
    hours      smallint NOT NULL,
    due_at     timestamptz                           -- when the key is deleted; null before the last outcome
) WITH (autovacuum_vacuum_threshold = 50, autovacuum_vacuum_scale_factor = 0);
CREATE INDEX content_keys_by_due ON content_keys (due_at) WHERE due_at IS NOT NULL;

ALTER TABLE inbound_routes ADD COLUMN retain_content boolean NOT NULL DEFAULT true;

-- Received messages whose content is deleted once they are posted or forwarded. A message without content has the raw_id
-- zero.
CREATE TABLE inbound_forgets (
    message_id uuid PRIMARY KEY,                     -- of inbound_messages
    account_id uuid NOT NULL,
    event_id   uuid NOT NULL,                        -- of its `inbound.received` event, which is posted
    look_at    timestamptz NOT NULL,
    looks      smallint NOT NULL DEFAULT 0
) WITH (fillfactor = 80);
CREATE INDEX inbound_forgets_by_look ON inbound_forgets (look_at);
CREATE INDEX inbound_forgets_by_account ON inbound_forgets (account_id);
