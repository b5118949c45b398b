-- How far a person's address is theirs, and who may operate the installation (decision 0092).
ALTER TABLE users
    ADD COLUMN operator_at      timestamptz,                     -- confirmed by `ops person operator`; null: no operator
    ADD COLUMN verified_by_link boolean NOT NULL DEFAULT false,  -- by the link alone, without password or session
    ADD COLUMN signed_up_from   text;                            -- network address, until the address is verified
