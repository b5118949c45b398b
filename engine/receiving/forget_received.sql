-- name: take_due
-- Take at most $1 messages that are due to be looked at, and put each off: by 2 s, then twice as long each time, up to
-- 5 minutes. Return whether each is final: no post of its event waits, and it does not wait to be forwarded or for that delivery.
UPDATE inbound_forgets f
SET look_at = now() + least(interval '2 seconds' * 2 ^ least(f.looks, 10), interval '5 minutes'), looks = least(f.looks + 1, 100)
WHERE f.message_id = ANY (ARRAY(
    SELECT message_id FROM inbound_forgets WHERE look_at <= now() ORDER BY look_at LIMIT $1 FOR UPDATE SKIP LOCKED))
RETURNING f.message_id, f.account_id,
    NOT EXISTS (SELECT 1 FROM inbound_forwards w WHERE w.message_id = f.message_id)
    AND NOT EXISTS (SELECT 1 FROM webhooks w JOIN webhook_queue q ON q.webhook_id = w.id AND q.event_id = f.event_id
                    WHERE w.account_id = f.account_id) AS is_final;

-- name: drop_forgotten
-- Remove messages $1, whose content is deleted or which are gone.
DELETE FROM inbound_forgets WHERE message_id = ANY ($1::uuid[]);
