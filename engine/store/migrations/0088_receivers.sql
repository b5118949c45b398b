-- How receivers treat mail, for forecasts of its arrival: one row per receiver and five minutes of acceptance, of all
-- accounts together. Delivering processes add to it every few seconds, so the low fillfactor keeps updates within their
-- page. `accounts` are at most three digests with a key of their day, to know whether the figures are of several accounts;
-- they name none. Kept for eight days.
CREATE TABLE receiver_cohorts (
    bucket          timestamptz NOT NULL,            -- the begin of the five minutes
    provider        text NOT NULL,
    site            text NOT NULL,                   -- '': all of the provider
    entered         integer NOT NULL,                -- recipients whose delivery began
    ended           integer NOT NULL,                -- neither delivered nor waiting any more
    first_delivered integer NOT NULL,                -- outcomes of first attempts
    first_deferred  integer NOT NULL,
    first_refused   integer NOT NULL,                -- rejected for a reason that concerns all mail
    times           integer[] NOT NULL,              -- deliveries by class of time (engine.receiving.receivers)
    accounts        text[] NOT NULL,
    PRIMARY KEY (bucket, provider, site)
) WITH (fillfactor = 70);

-- The present judgement of each receiver, which the worker makes of these rows; few rows, written every quarter minute.
CREATE TABLE receivers (
    provider    text NOT NULL,
    site        text NOT NULL,
    state       text NOT NULL CHECK (state IN ('normal', 'slow', 'deferring', 'refusing', 'unknown')),
    since       timestamptz NOT NULL,
    basis       text NOT NULL CHECK (basis IN ('recent', 'week')),
    sample      integer NOT NULL,
    first_share real,                                -- of first attempts: delivered
    survival    real[] NOT NULL,                     -- the share that still waits at the end of each class of time
    accounts    text[] NOT NULL,
    updated_at  timestamptz NOT NULL,
    PRIMARY KEY (provider, site)
) WITH (fillfactor = 50);
