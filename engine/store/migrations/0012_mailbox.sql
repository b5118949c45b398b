-- System mail: whom it comes from, where the operator says so beside the settings.

ALTER TABLE platform ADD COLUMN sender text;  -- `Name <address>` of a verified domain of the account; null: the default
