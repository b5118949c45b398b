-- When people were told by mail that a send waits for them: at most one mail per account and quarter of an hour.
ALTER TABLE agent_sends ADD COLUMN told_at timestamptz;
CREATE INDEX agent_sends_untold ON agent_sends (account_id) WHERE told_at IS NULL AND state = 'pending';
