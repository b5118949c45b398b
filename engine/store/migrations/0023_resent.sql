-- The message whose content a message sends again, if any. A nullable column without a default rewrites no row.
ALTER TABLE messages ADD COLUMN resent_from uuid;

-- This version settles without the function `settle_whole` (migration 0021). Processes of the version before still call
-- it while they are replaced one by one, so it stays here; a migration of the next version drops it.
