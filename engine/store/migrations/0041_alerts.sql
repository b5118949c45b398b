-- Alerts: rules, each measured every minute, and what has fired.

CREATE TABLE alert_rules (
    id               uuid PRIMARY KEY,
    account_id       uuid NOT NULL REFERENCES accounts,
    kind             text NOT NULL
        CHECK (kind IN ('complaint_rate', 'bounce_rate', 'quota_usage', 'dns_drift', 'blocklist')),
    threshold        double precision NOT NULL CHECK (threshold > 0),
    window_days      smallint NOT NULL CHECK (window_days BETWEEN 1 AND 30),
    cooldown_minutes integer NOT NULL CHECK (cooldown_minutes BETWEEN 5 AND 43200),
    notify_email     boolean NOT NULL,
    notify_webhook   boolean NOT NULL,
    enabled          boolean NOT NULL,
    -- The state, which only measurements change; an edit leaves it.
    firing_since     timestamptz,                    -- null: it does not fire
    below            smallint NOT NULL DEFAULT 0,    -- measurements below the threshold in a row, while it fires
    event_id         uuid,                           -- the alert event of the present firing
    notified         boolean NOT NULL DEFAULT false, -- the notice of the present firing went out
    noticed_at       timestamptz,                    -- when the last notice went out: the cooldown begins here
    last_value       double precision,               -- null: not measured yet, or unknown
    unknown_because  text,                           -- why the last measurement gave no value
    last_measured_at timestamptz,
    tested_at        timestamptz,
    created_at       timestamptz NOT NULL,
    updated_at       timestamptz NOT NULL,
    UNIQUE (account_id, kind)
) WITH (fillfactor = 50);                            -- every row is rewritten each minute, without a change of an index
CREATE INDEX alert_rules_measured ON alert_rules (kind, account_id) WHERE enabled;

-- What has fired, with the value and the threshold of that moment. They outlive their rule.
CREATE TABLE alert_events (
    id          uuid PRIMARY KEY,
    account_id  uuid NOT NULL REFERENCES accounts,
    rule_id     uuid NOT NULL,
    kind        text NOT NULL,
    value       double precision NOT NULL,
    threshold   double precision NOT NULL,
    window_days smallint NOT NULL,
    channels    text[] NOT NULL DEFAULT '{}',        -- on which the notice went out; empty: none did
    detail      text NOT NULL,                       -- JSON
    fired_at    timestamptz NOT NULL,
    ended_at    timestamptz
);
CREATE INDEX alert_events_by_account ON alert_events (account_id, id);

-- outcome_quarters by UTC day, for rates over more than a day; kept a month.
CREATE TABLE outcome_days (
    account_id uuid NOT NULL REFERENCES accounts,
    day        date NOT NULL,
    settled    integer NOT NULL,
    bounced    integer NOT NULL,
    complained integer NOT NULL,
    PRIMARY KEY (account_id, day)
) WITH (fillfactor = 50);
CREATE INDEX outcome_days_by_time ON outcome_days (day);
INSERT INTO outcome_days
SELECT account_id, date '1970-01-01' + quarter / 96, sum(settled), sum(bounced), sum(complained)
FROM outcome_quarters GROUP BY 1, 2;

-- Of the records of a domain that were correct once: how many are not any more, by two checks in a row, and for how many
-- the last check had no answer. See engine/areas/domains/drift.py.
ALTER TABLE domains
    ADD COLUMN records_drifted smallint NOT NULL DEFAULT 0,
    ADD COLUMN records_unanswered smallint NOT NULL DEFAULT 0;
