-- name: take_untold
-- Lock and return at most $1 broadcasts that wait for review and of which the operator was not told.
SELECT b.id, b.account_id, a.name AS account_name, b.name, b.sender, b.list_id, b.segment_id
FROM broadcasts b JOIN accounts a ON a.id = b.account_id
WHERE b.status = 'in_review' AND b.notified_at IS NULL
ORDER BY b.id LIMIT $1 FOR NO KEY UPDATE OF b SKIP LOCKED;

-- name: mark_told
-- Record that the operator was told of broadcast $1 at $2.
UPDATE broadcasts SET notified_at = $2 WHERE id = $1;
