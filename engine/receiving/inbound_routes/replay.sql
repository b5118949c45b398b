-- name: queue_again
-- Queue event $2 (seq $3 of account $1) for the endpoints $4. The retry schedule restarts unless one is running; a post
-- that waits for its retry becomes due now.
INSERT INTO webhook_queue AS q (webhook_id, event_id, account_id, seq, due_at, attempts, ladder_from)
SELECT w.id, $2, $1, $3, now(), coalesce(had.attempts, 0), coalesce(had.attempts, 0)
FROM unnest($4::uuid[]) AS w (id) CROSS JOIN LATERAL (
    SELECT max(a.attempt) AS attempts FROM webhook_attempts a WHERE a.webhook_id = w.id AND a.event_id = $2) had
ON CONFLICT (webhook_id, event_id) DO UPDATE
SET due_at = CASE WHEN q.leased_until > now() THEN q.due_at ELSE least(q.due_at, now()) END;

-- name: forward_again
-- Queue the received message $2 of account $1 to be forwarded to $3 because a person or a key asked for it. One that
-- waits for its acceptance keeps its key, so that it is forwarded once; one that was accepted is forwarded once more.
INSERT INTO inbound_forwards AS f (message_id, account_id, forward_to, due_at, requested)
VALUES ($2, $1, $3, now(), true)
ON CONFLICT (message_id) DO UPDATE
SET forward_to = excluded.forward_to, due_at = now(), attempts = 0, requested = true, sent_as = NULL,
    key = CASE WHEN f.sent_as IS NULL AND f.forward_to = excluded.forward_to THEN f.key ELSE excluded.key END;

-- name: remember_include
-- Let the posts of the received message $2 of account $1 include the bodies $3 (JSON).
UPDATE inbound_messages SET include = $3::jsonb WHERE account_id = $1 AND id = $2 AND include <> $3::jsonb;
