-- The bounces of an account, newest first: a small part of its log.
CREATE INDEX events_of_bounces ON events (account_id, seq) WHERE type IN ('bounced', 'failed');
