-- name: people_to_tell
-- Return the accounts $1 with their names and the addresses of their owners and admins; a sub-account has those of its
-- parent.
SELECT a.id AS account_id, a.name,
       ARRAY(SELECT DISTINCT u.email FROM members m JOIN users u ON u.id = m.user_id
             WHERE m.account_id = coalesce(a.parent_id, a.id) AND m.role IN ('owner', 'admin') ORDER BY u.email) AS emails
FROM accounts a WHERE a.id = ANY ($1::uuid[]);

-- name: subscribed
-- Return which of the accounts $1 have an active webhook that gets events of type $2.
SELECT DISTINCT account_id FROM webhooks
WHERE account_id = ANY ($1::uuid[]) AND status = 'active' AND NOT filtered
  AND webhook_wants(event_types, $2);

-- name: unpost
-- Drop the posts of events $2 of accounts $1, which this transaction queued, to webhooks.
DELETE FROM webhook_queue q USING webhooks w
WHERE w.account_id = ANY ($1::uuid[]) AND q.webhook_id = w.id AND q.event_id = ANY ($2::uuid[]);
