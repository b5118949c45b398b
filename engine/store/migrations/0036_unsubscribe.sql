-- Unsubscribe links, topic opt-outs, and the link that caused a suppression.

-- One row for each link that was put into a message. A row outlives message, contact and retention, and goes with its
-- account. No foreign keys: they would cost each message a lookup, and all writers hold the account's head.
CREATE TABLE unsubscribe_links (
    id           uuid PRIMARY KEY,                   -- the token of the link holds it (engine.mail.unsubscribe_token)
    account_id   uuid NOT NULL,
    address      text NOT NULL,                      -- canonical
    broadcast_id uuid,                               -- null: a single message with `listUnsubscribe` `auto`
    list_id      uuid,                               -- the topic; null where the link belongs to no list
    created_at   timestamptz NOT NULL
);
CREATE INDEX unsubscribe_links_by_account ON unsubscribe_links (account_id);

-- People who opted out of one topic: broadcasts to this list skip them.
CREATE TABLE topic_opt_outs (
    account_id uuid NOT NULL,
    list_id    uuid NOT NULL,
    address    text NOT NULL,                        -- canonical
    link_id    uuid,                                 -- the link that was used; null: imported
    created_at timestamptz NOT NULL,
    PRIMARY KEY (account_id, list_id, address)
);

-- The link whose use made this suppression, which alone may undo it; null for all other suppressions.
ALTER TABLE suppressions ADD COLUMN unsubscribe_link uuid;

-- Mail to `u+<token>@` waits with the reports.
ALTER TABLE report_mails DROP CONSTRAINT report_mails_purpose_check;
ALTER TABLE report_mails ADD CONSTRAINT report_mails_purpose_check
    CHECK (purpose IN ('bounce', 'feedback', 'dmarc', 'tls', 'unsubscribe'));
