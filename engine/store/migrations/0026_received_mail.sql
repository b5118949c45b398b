-- Received messages: what the route decided, text to search, conversations, indexes of the mailbox, counts by address.

ALTER TABLE inbound_messages
    ADD COLUMN sender_address text,                  -- of From, lower case, to filter by
    ADD COLUMN thread_key     bigint NOT NULL,       -- digest of the Message-ID that began the conversation
    ADD COLUMN include        jsonb NOT NULL DEFAULT '[]',     -- of its route: bodies in the webhook
    ADD COLUMN forward_to     text,                  -- of its route
    ADD COLUMN event_seq      bigint;                -- with the account: where its event is found
CREATE INDEX inbound_messages_by_thread ON inbound_messages (account_id, thread_key, id);
CREATE INDEX inbound_messages_by_sender ON inbound_messages (account_id, sender_address, id);
-- The flags make these indexes sufficient to count and to skip messages: no row is read.
DROP INDEX inbound_messages_by_account, inbound_messages_by_address;
CREATE INDEX inbound_messages_by_account ON inbound_messages (account_id, id)
    INCLUDE (in_mailbox, is_spam, is_read, address_id);
CREATE INDEX inbound_messages_by_address ON inbound_messages (address_id, id) INCLUDE (in_mailbox, is_spam, is_read);
-- A few unread messages, or little spam, among a million others.
CREATE INDEX inbound_messages_unread ON inbound_messages (account_id, id) INCLUDE (in_mailbox, is_spam, address_id)
    WHERE NOT is_read;
CREATE INDEX inbound_messages_spam ON inbound_messages (account_id, id) INCLUDE (in_mailbox, is_read, address_id)
    WHERE is_spam;

-- The beginning of the readable text, for the search in bodies; once for all recipients, as the bytes.
ALTER TABLE inbound_bytes ADD COLUMN search_text text NOT NULL DEFAULT '';

-- Messages of a deleted address are still counted under its name.
ALTER TABLE inbound_counts ADD COLUMN address text NOT NULL;

-- For the erasure of an account.
CREATE INDEX inbound_recent_by_account ON inbound_recent (account_id);

-- A sent message that answers a received one.
ALTER TABLE messages ADD COLUMN answers uuid;
CREATE INDEX messages_by_answered ON messages (account_id, answers, id) WHERE answers IS NOT NULL;

-- Whether an endpoint with these event types hears of an event: account events stay inside the account log but for
-- the few that are promised. Posts of `inbound.received` are queued by the route of the message alone, a test event
-- goes to the endpoint under test alone.
CREATE OR REPLACE FUNCTION webhook_wants(event_types text[], type text) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN (position('.' IN type) = 0 OR type IN ('alert.fired', 'domain.verified', 'domain.failed', 'suppression.added'))
   AND (cardinality(event_types) = 0 OR type = ANY (event_types));

-- Messages to be forwarded, queued in the transaction that stores them or sends them along their route again.
CREATE TABLE inbound_forwards (
    message_id uuid PRIMARY KEY,                     -- of inbound_messages
    account_id uuid NOT NULL,
    forward_to text NOT NULL,
    due_at     timestamptz NOT NULL,
    attempts   integer NOT NULL DEFAULT 0
) WITH (fillfactor = 80);
CREATE INDEX inbound_forwards_by_due ON inbound_forwards (due_at);
CREATE INDEX inbound_forwards_by_account ON inbound_forwards (account_id);
