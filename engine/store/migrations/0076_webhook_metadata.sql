-- Webhook endpoints whose posts carry the tags and metadata of the message.
ALTER TABLE webhooks ADD COLUMN include_metadata boolean NOT NULL DEFAULT false;
