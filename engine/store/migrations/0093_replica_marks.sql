-- One row, which a process rewrites every few seconds while it reads from replicas: a replica that shows it follows this
-- primary. `timeline` is the one that the primary had then; a promotion increases it.
CREATE TABLE replica_marks (
    only_row  boolean     PRIMARY KEY DEFAULT true CHECK (only_row),
    timeline  integer     NOT NULL,
    marked_at timestamptz NOT NULL
) WITH (fillfactor = 10);
