-- name: broadcasts_in_progress
-- List the broadcasts of account $1 (null: of all) that have not ended and are no drafts, those that workers look at next
-- first, at most $2.
SELECT b.id, b.account_id, a.name AS account, b.name, b.status, b.paused_because, b.waits_for, b.scheduled_at, b.resumes_at,
       coalesce(p.recipients, 0) AS recipients, coalesce(p.accepted, 0) AS accepted,
       coalesce(p.suppressed + p.removed + p.template_error + p.unconfirmed + p.unsubscribed, 0) AS skipped,
       w.due_at, w.worker
FROM broadcasts b JOIN accounts a ON a.id = b.account_id
LEFT JOIN broadcast_work w ON w.broadcast_id = b.id
LEFT JOIN broadcast_progress p ON p.broadcast_id = b.id
WHERE b.status IN ('in_review', 'scheduled', 'sending', 'paused') AND ($1::uuid IS NULL OR b.account_id = $1)
ORDER BY w.due_at NULLS LAST, b.id LIMIT $2;
