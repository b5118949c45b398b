-- The operator's lists of accounts: those in one status, and those whose name begins with a text.
CREATE INDEX accounts_by_status ON accounts (status, id);
CREATE INDEX accounts_by_name ON accounts ((lower(name) COLLATE "C"), id);
