-- The message whose content this one sends again, if any. A nullable column without a default: no row is rewritten.
ALTER TABLE messages ADD COLUMN resent_from uuid;
