-- The operator's levers on the queue, the least TLS a message asks for, traces, and which TLS reports went out.

-- What is held back until the operator lets it go. A hold that has ended stays until its rows are back.
CREATE TABLE holds (
    id         uuid PRIMARY KEY,
    kind       text NOT NULL CHECK (kind IN ('domain', 'account', 'message', 'site')),
    target     text NOT NULL,                        -- A-labels, public id, or a site's name
    reason     text NOT NULL,                        -- the operator's words: the waybill repeats them
    created_at timestamptz NOT NULL DEFAULT now(),
    until      timestamptz,                          -- null: until it is resumed
    ended      boolean NOT NULL DEFAULT false
);
CREATE UNIQUE INDEX holds_by_target ON holds (kind, target) WHERE NOT ended;

ALTER TABLE queue
    ADD COLUMN held_by uuid,                         -- the hold that keeps the row from falling due
    ADD COLUMN min_tls text CHECK (min_tls IN ('none', 'opportunistic', 'verified'));  -- null: as the domain wants it
CREATE INDEX queue_by_hold ON queue (held_by, message_id, domain) WHERE held_by IS NOT NULL;

ALTER TABLE schedules ADD COLUMN min_tls text CHECK (min_tls IN ('none', 'opportunistic', 'verified'));

-- Conversations to be shown live: what to trace, and for how long.
CREATE TABLE traces (
    id         uuid PRIMARY KEY,
    domain     text NOT NULL,                        -- A-labels, lower case
    expires_at timestamptz NOT NULL
);

-- One row a TLS report: the policy domain and the UTC day it tells of.
CREATE TABLE tls_reports (
    day        date NOT NULL,
    domain     text NOT NULL,
    sent_to    text[] NOT NULL,                      -- empty: the domain asks for none
    message_id uuid,
    made_at    timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (day, domain)
);

INSERT INTO stamps (kind) VALUES ('holds'), ('traces') ON CONFLICT DO NOTHING;
