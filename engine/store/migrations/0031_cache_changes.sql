-- Which account each change of a cached kind concerns, so that the processes drop what they know of that account alone.
-- Versions of a kind are those of its row in `stamps`, whose lock orders them. A version without a row here (written by a
-- process of the version before) concerns everything. Only the last versions are kept.
CREATE TABLE cache_changes (
    kind       text NOT NULL,
    version    bigint NOT NULL,
    account_id uuid,                                 -- null: the change concerns every account
    PRIMARY KEY (kind, version)
);
