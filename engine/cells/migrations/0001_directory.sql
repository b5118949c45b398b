-- The directory of an installation with several cells: which cell has an account, and what may exist in one cell only.
-- It is a database of its own, beside those of the cells.

CREATE TABLE cells (
    name       text PRIMARY KEY CHECK (name ~ '^[a-z0-9][a-z0-9-]{0,30}$'),
    api_url    text NOT NULL,
    submission text,                                 -- host:port for the SMTP front; NULL: the cell accepts none
    mx         text,
    state      text NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'closed')),
    weight     integer NOT NULL DEFAULT 100 CHECK (weight BETWEEN 0 AND 10000),
    added_at   timestamptz NOT NULL DEFAULT now()
);

-- One row. Each change takes the next number under its lock, so that numbers become visible in their order and a reader
-- that asks for numbers above the last one it saw misses none.
CREATE TABLE directory_version (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    version  bigint NOT NULL
);
INSERT INTO directory_version (version) VALUES (0);

CREATE TABLE placements (
    account_id uuid PRIMARY KEY,
    cell       text REFERENCES cells,                -- NULL: removed; the row tells the fronts
    moving_to  text REFERENCES cells,
    version    bigint NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT now(),
    CHECK (moving_to IS NULL OR moving_to <> cell)
);
CREATE INDEX placements_by_version ON placements (version);
CREATE INDEX placements_by_cell ON placements (cell, account_id);

-- Names that must be unique across cells. Within its cell, the constraints of that cell's database decide.
CREATE TABLE claims (
    kind       text NOT NULL,
    name       text NOT NULL,
    cell       text NOT NULL REFERENCES cells,
    holder     uuid NOT NULL,                        -- the account, or the person for addresses and identities
    claimed_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (kind, name)
);
CREATE INDEX claims_by_cell ON claims (cell, kind, name);
CREATE INDEX claims_by_holder ON claims (holder);
