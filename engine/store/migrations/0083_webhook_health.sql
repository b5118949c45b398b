-- How webhook endpoints respond: posts by hour with the last response of the hour, and failures in a row.

ALTER TABLE webhooks
    ADD COLUMN failures integer NOT NULL DEFAULT 0,  -- in a row; a delivery that was given up counts as several
    ADD COLUMN failing_since timestamptz;            -- the first failure in that row; null: the last post succeeded

-- One row per endpoint and hour with posts, kept as long as attempts. The statement that records attempts updates it once
-- per batch, so the low fillfactor keeps updates within their page.
CREATE TABLE webhook_hours (
    webhook_id        uuid NOT NULL,
    hour              timestamptz NOT NULL,
    posts             integer NOT NULL,
    delivered         integer NOT NULL,
    last_at           timestamptz NOT NULL,
    last_status       smallint,                      -- null: no response
    last_error        text,
    last_milliseconds integer NOT NULL,
    PRIMARY KEY (webhook_id, hour)
) WITH (fillfactor = 50);
CREATE INDEX webhook_hours_by_time ON webhook_hours (hour);

ALTER TABLE alert_rules DROP CONSTRAINT alert_rules_kind_check;
ALTER TABLE alert_rules ADD CONSTRAINT alert_rules_kind_check CHECK (kind IN (
    'complaint_rate', 'bounce_rate', 'quota_usage', 'dns_drift', 'blocklist', 'webhook_failing'));
