-- Figures that outlive the records they were counted from, and how far counting and retention have come.

-- The Unix milliseconds in a UUIDv7, and the smallest UUIDv7 of a millisecond (engine.base.ids.floor_of).
CREATE FUNCTION uuid7_ms(id uuid) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN ('x' || left(id::text, 8) || substr(id::text, 10, 4))::bit(48)::bigint;

CREATE FUNCTION uuid7_floor(ms bigint) RETURNS uuid LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN (lpad(to_hex(greatest(ms, 0)), 12, '0') || '70008000000000000000')::uuid;

-- The quarter hour in which a UUIDv7 was made, counted from 1970: every zone's midnight lies between two of them.
CREATE FUNCTION uuid7_quarter(id uuid) RETURNS integer LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN (uuid7_ms(id) / 900000)::integer;

-- An account's messages by the quarter hour of their making, sending domain and present status.
CREATE TABLE message_quarters (
    account_id  uuid NOT NULL REFERENCES accounts,
    quarter     integer NOT NULL,
    from_domain text NOT NULL,
    accepted    integer NOT NULL,                    -- for delivery: not waiting for a date, withdrawn or refused then
    queued      integer NOT NULL,
    sending     integer NOT NULL,
    delivered   integer NOT NULL,
    bounced     integer NOT NULL,
    complained  integer NOT NULL,
    failed      integer NOT NULL,
    rejected    integer NOT NULL,
    scheduled   integer NOT NULL,
    canceled    integer NOT NULL,
    PRIMARY KEY (account_id, quarter, from_domain)
) WITH (fillfactor = 80);

-- Accepted messages by UTC day of acceptance: what counts against the allowance.
CREATE TABLE accepted_days (
    account_id uuid NOT NULL REFERENCES accounts,
    day        date NOT NULL,
    messages   integer NOT NULL,
    PRIMARY KEY (account_id, day)
) WITH (fillfactor = 80);

-- The two tables above hold the account log up to counted_seq: a quarter that a later event touches is counted afresh,
-- unless it lies before first_quarter, whose messages may be gone.
CREATE TABLE account_records (
    account_id    uuid PRIMARY KEY REFERENCES accounts,
    counted_seq   bigint NOT NULL DEFAULT 0,
    counted_at    timestamptz NOT NULL DEFAULT '1970-01-01 00:00Z',
    first_quarter integer NOT NULL DEFAULT 0,
    swept_at      timestamptz NOT NULL DEFAULT '1970-01-01 00:00Z'
) WITH (fillfactor = 50);

-- What message_quarters holds of one quarter, from the messages themselves. The `accepted` event is asked for only
-- where the status leaves it open: a scheduled message may be refused at its release or after it.
CREATE FUNCTION count_messages(account uuid, counted integer)
RETURNS TABLE (from_domain text, accepted integer, queued integer, sending integer, delivered integer, bounced integer,
               complained integer, failed integer, rejected integer, scheduled integer, canceled integer)
LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT m.from_domain,
           (count(*) FILTER (WHERE m.status NOT IN ('scheduled', 'canceled')
               AND (m.status <> 'rejected' OR m.scheduled_at IS NULL
                    OR (SELECT e.type FROM events e
                        WHERE e.message_id = m.id AND e.account_id = account AND e.type = 'accepted'
                        LIMIT 1) IS NOT NULL)))::integer,
           (count(*) FILTER (WHERE m.status = 'queued'))::integer,
           (count(*) FILTER (WHERE m.status = 'sending'))::integer,
           (count(*) FILTER (WHERE m.status = 'delivered'))::integer,
           (count(*) FILTER (WHERE m.status = 'bounced'))::integer,
           (count(*) FILTER (WHERE m.status = 'complained'))::integer,
           (count(*) FILTER (WHERE m.status = 'failed'))::integer,
           (count(*) FILTER (WHERE m.status = 'rejected'))::integer,
           (count(*) FILTER (WHERE m.status = 'scheduled'))::integer,
           (count(*) FILTER (WHERE m.status = 'canceled'))::integer
    FROM messages m
    WHERE m.account_id = account
      AND m.id >= uuid7_floor(counted::bigint * 900000) AND m.id < uuid7_floor((counted::bigint + 1) * 900000)
    GROUP BY m.from_domain
$$;

-- An agreement's record history in days; it can only lengthen the plan's.
ALTER TABLE accounts ADD COLUMN retention_days integer CHECK (retention_days > 0);
