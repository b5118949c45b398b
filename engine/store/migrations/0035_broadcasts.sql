-- Broadcasts: one message to each contact of a list or a segment.

CREATE TABLE broadcasts (
    id               uuid PRIMARY KEY,
    account_id       uuid NOT NULL REFERENCES accounts,
    name             text NOT NULL,
    list_id          uuid,                           -- no foreign key: the list may be deleted after the start
    segment_id       uuid,
    stream           text NOT NULL,
    sender           text NOT NULL,
    from_domain      text NOT NULL,
    reply_to         text,
    template         text,
    template_version integer,                        -- set by `send`: later versions change nothing
    subject          text,
    html             text,
    text             text,
    attachments      text,                           -- JSON as in the request, with the files' contents; null: none
    per_minute       integer,                        -- most messages a minute; null: no bound
    status           text NOT NULL DEFAULT 'draft' CHECK (status IN (
        'draft', 'in_review', 'scheduled', 'sending', 'paused', 'stopped', 'sent', 'canceled')),
    paused_because   text,
    stopped_because  text,
    waits_for        text,                           -- why one in status `sending` waits: see engine.areas.broadcasts.types
    review_note      text,
    notified_at      timestamptz,                    -- when the operator was told that it waits for review
    scheduled_at     timestamptz,
    started_at       timestamptz,                    -- when its recipients were fixed
    finished_at      timestamptz,
    resumes_at       timestamptz,
    created_at       timestamptz NOT NULL,
    updated_at       timestamptz NOT NULL,
    CHECK ((list_id IS NULL) <> (segment_id IS NULL))
) WITH (fillfactor = 70);
CREATE INDEX broadcasts_by_account ON broadcasts (account_id, id);
CREATE INDEX broadcasts_started ON broadcasts (account_id, started_at) WHERE started_at IS NOT NULL;
CREATE INDEX broadcasts_awaiting ON broadcasts (account_id, list_id) WHERE status IN ('in_review', 'scheduled');
CREATE INDEX broadcasts_in_review ON broadcasts (id) WHERE status = 'in_review';

-- What the workers do next: one row for each broadcast that is scheduled, sending, or paused until something ends. A
-- worker claims a row by moving `due_at` ahead; a row of a worker that died falls due again.
CREATE TABLE broadcast_work (
    broadcast_id uuid PRIMARY KEY,
    account_id   uuid NOT NULL,
    due_at       timestamptz NOT NULL,
    worker       text                                -- the process that claimed it last
) WITH (fillfactor = 50);
CREATE INDEX broadcast_work_by_due ON broadcast_work (due_at);

-- The recipients as they were at the start. The transaction that accepts a message marks its recipient, so that there
-- is one message for each broadcast and contact.
CREATE TABLE broadcast_recipients (
    broadcast_id uuid NOT NULL,
    contact_id   uuid NOT NULL,
    address      text NOT NULL,                      -- canonical
    state        text NOT NULL DEFAULT 'waiting',    -- waiting, accepted, or why it was skipped
    message_id   uuid,
    outcome      text,                               -- the last outcome of the message that was counted
    PRIMARY KEY (broadcast_id, contact_id)
) WITH (fillfactor = 80);
CREATE INDEX broadcast_recipients_waiting ON broadcast_recipients (broadcast_id, contact_id) WHERE state = 'waiting';
CREATE INDEX broadcast_recipients_by_message ON broadcast_recipients (message_id) WHERE message_id IS NOT NULL;

-- Counts of recipients, changed by the transactions that accept or skip.
CREATE TABLE broadcast_progress (
    broadcast_id   uuid PRIMARY KEY,
    recipients     integer NOT NULL DEFAULT 0,
    accepted       integer NOT NULL DEFAULT 0,
    suppressed     integer NOT NULL DEFAULT 0,       -- from here on: skipped, by reason
    removed        integer NOT NULL DEFAULT 0,
    template_error integer NOT NULL DEFAULT 0,
    unconfirmed    integer NOT NULL DEFAULT 0,
    unsubscribed   integer NOT NULL DEFAULT 0
) WITH (fillfactor = 50);

-- Outcomes of its messages, counted from the account log. Apart from the progress, so that the two never wait for each
-- other.
CREATE TABLE broadcast_outcomes (
    broadcast_id uuid PRIMARY KEY,
    delivered    integer NOT NULL DEFAULT 0,
    bounced      integer NOT NULL DEFAULT 0,
    complained   integer NOT NULL DEFAULT 0,
    failed       integer NOT NULL DEFAULT 0,
    rejected     integer NOT NULL DEFAULT 0,
    unsubscribed integer NOT NULL DEFAULT 0          -- people who opted out through its links
) WITH (fillfactor = 50);

-- How far the outcomes of an account's broadcasts are counted; deleted some weeks after its last broadcast.
CREATE TABLE broadcast_watches (
    account_id  uuid PRIMARY KEY REFERENCES accounts,
    counted_seq bigint NOT NULL,
    counted_at  timestamptz NOT NULL,
    ends_at     timestamptz NOT NULL
) WITH (fillfactor = 50);

-- Accounts whose broadcasts the operator has approved once. The row is locked while a broadcast's recipients are fixed,
-- so that two broadcasts that start together see each other's recipients.
CREATE TABLE broadcast_reviews (
    account_id  uuid PRIMARY KEY REFERENCES accounts,
    approved_at timestamptz
);

-- Whether a broadcast of account $1 that waits to start names list $2; such a list can't be deleted.
CREATE OR REPLACE FUNCTION list_is_awaited(uuid, uuid) RETURNS boolean LANGUAGE sql STABLE AS
'SELECT EXISTS (SELECT 1 FROM broadcasts WHERE account_id = $1 AND list_id = $2 AND status IN (''in_review'', ''scheduled''))';

-- The same for segment $2.
CREATE OR REPLACE FUNCTION segment_is_awaited(uuid, uuid) RETURNS boolean LANGUAGE sql STABLE AS
'SELECT EXISTS (SELECT 1 FROM broadcasts WHERE account_id = $1 AND segment_id = $2 AND status IN (''in_review'', ''scheduled''))';
