-- A list of suppressions by reason or by a part of the address reads this index alone, not the rows.
CREATE INDEX suppressions_in_order ON suppressions (account_id, created_at DESC, address DESC) INCLUDE (reason);
DROP INDEX suppressions_by_time;

-- The messages that had an unusual outcome: those with the statuses bounced, complained, failed, rejected and canceled.
-- An index by the status would cost each message the cheap (HOT) update of its row.
CREATE INDEX events_by_outcome ON events (account_key(account_id, type), message_id)
    WHERE type IN ('bounced', 'complained', 'failed', 'rejected', 'suppressed', 'schedule_canceled', 'schedule_failed');
