-- What every host of an installation must agree on; written by the first, compared by each that starts.
CREATE TABLE installation (
    one          boolean PRIMARY KEY DEFAULT true CHECK (one),  -- there is no second
    shards       integer NOT NULL,
    pepper_print bytea NOT NULL                                 -- tells peppers apart, gives none away
);
