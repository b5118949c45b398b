-- fragment: shown
-- Columns in the order of AgentSendRow.
id, key_id, agent, state, sender, subject, recipients, sealed_email, message_id, decided_by, created_at, expires_at,
decided_at

-- name: list_agent_sends
-- List sends of account $1 with ids below $2 (null: from the newest) and state $3 (null: any), made with key $4 (null: any),
-- newest first, at most $5; a pending one has expired at $6.
SELECT :shown FROM agent_sends
WHERE account_id = $1 AND ($2::uuid IS NULL OR id < $2) AND ($4::uuid IS NULL OR key_id = $4)
  AND ($3::text IS NULL
       OR (CASE WHEN state = 'pending' AND expires_at <= $6::timestamptz THEN 'expired' ELSE state END) = $3)
ORDER BY id DESC LIMIT $5;

-- name: read_agent_send
-- Read send $2 of account $1, made with key $3 (null: any).
SELECT :shown FROM agent_sends WHERE account_id = $1 AND id = $2 AND ($3::uuid IS NULL OR key_id = $3);

-- name: same_agent_send
-- Read the send of account $1 with key $2 and digest $3 that is pending at $4.
SELECT :shown FROM agent_sends
WHERE account_id = $1 AND key_id = $2 AND digest = $3 AND state = 'pending' AND expires_at > $4 LIMIT 1;

-- name: count_pending
-- Count the sends of account $1 that are pending at $2.
SELECT count(*) AS pending FROM agent_sends WHERE account_id = $1 AND state = 'pending' AND expires_at > $2;

-- name: insert_agent_send
-- Insert the pending send $1 of account $2: key $3, agent $4, digest $5, sender $6, subject $7, recipients $8, its encrypted
-- email $9, created at $10, to decide until $11.
INSERT INTO agent_sends (id, account_id, key_id, agent, state, digest, sender, subject, recipients, sealed_email,
                         created_at, expires_at)
VALUES ($1, $2, $3, $4, 'pending', $5, $6, $7, $8, $9, $10, $11)
RETURNING :shown;

-- name: claim_agent_send
-- Mark send $2 of account $1 approved by person $3 at $4. One that is approved, but not sent, keeps its person: an approval
-- that a crash ended is taken up again, while its idempotency key is sure to be known.
UPDATE agent_sends
SET state = 'approved', decided_by = CASE WHEN state = 'approved' THEN decided_by ELSE $3 END,
    decided_at = CASE WHEN state = 'approved' THEN decided_at ELSE $4 END
WHERE account_id = $1 AND id = $2
  AND state IN ('pending', 'approved') AND expires_at > $4
RETURNING :shown;

-- name: release_agent_send
-- Let send $2 of account $1 wait again, as its approval by person $3 at $4 was refused; an earlier one stays.
UPDATE agent_sends SET state = 'pending', decided_by = NULL, decided_at = NULL
WHERE account_id = $1 AND id = $2 AND state = 'approved' AND decided_by = $3 AND decided_at = $4;

-- name: key_is_revoked
-- Return a row if key $2 of account $1 was revoked.
SELECT FROM api_keys WHERE account_id = $1 AND id = $2 AND revoked_at IS NOT NULL;

-- name: finish_agent_send
-- Mark send $2 of account $1, which person $4 approved at $5, as sent with message $3; returns no row if it was marked
-- before. It may wait again, where another approval was refused meanwhile.
UPDATE agent_sends
SET state = 'sent', message_id = $3, sealed_email = NULL, decided_by = coalesce(decided_by, $4),
    decided_at = coalesce(decided_at, $5)
WHERE account_id = $1 AND id = $2 AND state IN ('pending', 'approved') RETURNING :shown;

-- name: decline_agent_send
-- Decline the pending send $2 of account $1 by person $3 at $4.
UPDATE agent_sends SET state = 'declined', decided_by = $3, decided_at = $4, sealed_email = NULL
WHERE account_id = $1 AND id = $2 AND state = 'pending' AND expires_at > $4 RETURNING :shown;

-- name: untold_accounts
-- List at most $3 accounts with a send that is pending at $1 and of which nobody was told; none that was told of others
-- since $2.
SELECT DISTINCT account_id FROM agent_sends s
WHERE told_at IS NULL AND state = 'pending' AND expires_at > $1
  AND NOT EXISTS (SELECT FROM agent_sends t WHERE t.account_id = s.account_id AND t.told_at > $2)
LIMIT $3;

-- name: mark_told
-- Mark the sends of account $1 that are pending at $2 as told then, unless it was told of others since $3.
UPDATE agent_sends SET told_at = $2
WHERE account_id = $1 AND told_at IS NULL AND state = 'pending' AND expires_at > $2
  AND NOT EXISTS (SELECT FROM agent_sends t WHERE t.account_id = $1 AND t.told_at > $3)
RETURNING id;

-- name: forget_expired
-- Delete the emails of at most $2 sends that were not sent before they expired at $1.
UPDATE agent_sends SET sealed_email = NULL
WHERE id IN (SELECT id FROM agent_sends WHERE expires_at <= $1 AND sealed_email IS NOT NULL LIMIT $2);

-- name: purge_agent_sends
-- Delete at most $2 sends whose time to decide ended before $1.
DELETE FROM agent_sends WHERE id IN (SELECT id FROM agent_sends WHERE expires_at <= $1 LIMIT $2);
