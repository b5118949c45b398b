-- Webhook endpoints whose posts are also signed as Standard Webhooks says, and those that honor Retry-After.
ALTER TABLE webhooks
    ADD COLUMN signatures text[] NOT NULL DEFAULT '{waybill}',     -- 'standard' adds the headers of Standard Webhooks
    ADD COLUMN honor_retry_after boolean NOT NULL DEFAULT false;

-- Seconds by which Retry-After has made the next attempt later than the retry schedule; null: none. Nullable without a
-- default, so that rows of other posts stay as small as they were.
ALTER TABLE webhook_queue ADD COLUMN late_s integer;

ALTER TABLE webhook_attempts ADD COLUMN signature_standard text;   -- as sent in webhook-signature; null: not sent
