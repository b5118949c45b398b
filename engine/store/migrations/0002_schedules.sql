-- Messages that wait for their time, and what the retries of a released one are counted from.

-- One row a message waiting for its release: gone once it is released, canceled or refused. The message itself, its
-- recipients and its body are stored like any other's.
CREATE TABLE schedules (
    message_id uuid PRIMARY KEY,
    account_id uuid NOT NULL,
    due_at     timestamptz NOT NULL,                 -- the time that was asked for
    look_at    timestamptz NOT NULL,                 -- when the release looks at it (again)
    deliver_by timestamptz
) WITH (fillfactor = 80);
CREATE INDEX schedules_by_look ON schedules (look_at);
CREATE INDEX schedules_by_account ON schedules (account_id, look_at);

-- How many of them an account has: bounded by its monthly allowance, counted under the head's lock.
ALTER TABLE account_heads ADD COLUMN scheduled integer NOT NULL DEFAULT 0;

ALTER TABLE queue
    ADD COLUMN accepted_at timestamptz,              -- of a released message, whose id is older; null: the id tells
    ADD COLUMN deliver_by  timestamptz;              -- no try after this one; null: as long as the service tries
