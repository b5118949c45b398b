-- Received messages: what the route decided, text to search, conversations, indexes of the mailbox, counts by address.

ALTER TABLE inbound_messages
    ADD COLUMN sender_address text,                  -- of From, lower case, to filter by
    ADD COLUMN thread_key     bigint NOT NULL,       -- digest of the Message-ID that began the conversation
    ADD COLUMN include        jsonb NOT NULL DEFAULT '[]',     -- of its route: bodies in the webhook
    ADD COLUMN forward_to     text;                  -- of its route
CREATE INDEX inbound_messages_by_thread ON inbound_messages (account_id, thread_key, id);
CREATE INDEX inbound_messages_by_sender ON inbound_messages (account_id, sender_address, id);
-- A mailbox with few unread messages, or little spam, among a million others is listed along these.
CREATE INDEX inbound_messages_unread ON inbound_messages (account_id, id) WHERE NOT is_read AND NOT is_spam AND in_mailbox;
CREATE INDEX inbound_messages_spam ON inbound_messages (account_id, id) WHERE is_spam AND in_mailbox;
-- The flags make the index sufficient to count and to skip: no row is read.
DROP INDEX inbound_messages_by_account;
CREATE INDEX inbound_messages_by_account ON inbound_messages (account_id, id) INCLUDE (in_mailbox, is_spam, is_read, address_id);

-- The beginning of the readable text, for the search in bodies; once for all recipients, as the bytes.
ALTER TABLE inbound_bytes ADD COLUMN search_text text NOT NULL DEFAULT '';

-- Messages of a deleted address are still counted under its name.
ALTER TABLE inbound_counts ADD COLUMN address text NOT NULL;

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
