-- Forwarding: what became of each message to be forwarded, shown on the received message.

-- A row stays until the forwarded message is delivered, so that a bounce brings the received one into the mailbox.
ALTER TABLE inbound_forwards
    ADD COLUMN key       uuid NOT NULL DEFAULT gen_random_uuid(),  -- of acceptance: no second message under it
    ADD COLUMN requested boolean NOT NULL DEFAULT false,           -- by a replay: spam is forwarded too
    ADD COLUMN sent_as   uuid;                       -- the accepted message, whose delivery is awaited

ALTER TABLE inbound_messages
    ADD COLUMN forwarded_as  uuid,                   -- the sent message that forwarded it last
    ADD COLUMN forward_error text;                   -- why it was not forwarded, or not delivered there
