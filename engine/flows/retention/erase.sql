-- name: try_lock
-- Whether this session is the one that erases now.
SELECT pg_try_advisory_lock($1) AS held;

-- name: unlock
-- Let others erase.
SELECT pg_advisory_unlock($1);

-- name: close_accounts
-- Accounts $1 are being erased: no key and no session opens them any more.
WITH ended AS (
    DELETE FROM sessions WHERE account_id = ANY ($1::uuid[])
), silent AS (
    UPDATE webhooks SET status = 'disabled' WHERE account_id = ANY ($1::uuid[]) AND status = 'active'
)
UPDATE accounts SET status = 'closing' WHERE id = ANY ($1::uuid[]) AND status <> 'closing' RETURNING id;

-- name: hold_all
-- Nothing more goes out of the account with public id $2: hold $1 for reason $3, whatever held it until now.
INSERT INTO holds (id, kind, target, reason) VALUES ($1, 'account', $2, $3)
ON CONFLICT (kind, target) WHERE NOT ended DO UPDATE SET reason = excluded.reason, until = NULL;

-- name: unsent
-- The next $2 queued deliveries of account $1 go.
DELETE FROM queue WHERE (message_id, domain) IN (SELECT message_id, domain FROM queue WHERE account_id = $1 LIMIT $2);

-- name: unposted
-- The next $2 pending posts of account $1 to its webhooks go.
DELETE FROM webhook_queue WHERE (webhook_id, event_id) IN (
    SELECT q.webhook_id, q.event_id FROM webhooks w JOIN webhook_queue q ON q.webhook_id = w.id WHERE w.account_id = $1 LIMIT $2);

-- name: unscheduled
-- The next $2 messages of account $1 that wait for their time wait no more.
DELETE FROM schedules WHERE message_id IN (SELECT message_id FROM schedules WHERE account_id = $1 LIMIT $2);

-- name: next_messages
-- The next $2 messages of account $1.
SELECT id FROM messages WHERE account_id = $1 ORDER BY id LIMIT $2;

-- name: erase_messages
-- Messages $1 and everything that hangs on them; $2 and $3 bound their ids, $4 are their public ids.
WITH waiting AS (
    DELETE FROM queue WHERE message_id = ANY ($1::uuid[])
), scheduled AS (
    DELETE FROM schedules WHERE message_id = ANY ($1::uuid[])
), held AS (
    DELETE FROM holds WHERE kind = 'message' AND target = ANY ($4::text[])
), report AS (
    UPDATE tls_reports SET message_id = NULL WHERE message_id = ANY ($1::uuid[])
), body AS (
    DELETE FROM message_bodies WHERE message_id = ANY ($1::uuid[]) AND message_id BETWEEN $2 AND $3
), recipient AS (
    DELETE FROM recipients WHERE message_id = ANY ($1::uuid[]) AND message_id BETWEEN $2 AND $3
)
DELETE FROM messages WHERE id = ANY ($1::uuid[]) AND id BETWEEN $2 AND $3;

-- name: erase_attempts
-- What the next $2 posts to the webhooks of account $1 brought.
DELETE FROM webhook_attempts WHERE (webhook_id, event_id) IN (
    SELECT a.webhook_id, a.event_id FROM webhooks w JOIN webhook_attempts a ON a.webhook_id = w.id
    WHERE w.account_id = $1 LIMIT $2);

-- name: erase_events
-- The next $2 events of the log of account $1; its head keeps where it ended.
DELETE FROM events WHERE account_id = $1 AND seq IN (SELECT seq FROM events WHERE account_id = $1 ORDER BY seq LIMIT $2);

-- name: erase_suppressions
-- The next $2 suppressions of account $1.
DELETE FROM suppressions WHERE account_id = $1
  AND address IN (SELECT address FROM suppressions WHERE account_id = $1 LIMIT $2);

-- name: erase_idempotency
-- The next $2 idempotency keys of account $1.
DELETE FROM idempotency WHERE account_id = $1 AND key IN (SELECT key FROM idempotency WHERE account_id = $1 LIMIT $2);

-- name: erase_quarters
-- The next $2 quarters of the figures of account $1.
DELETE FROM message_quarters WHERE account_id = $1 AND (quarter, from_domain) IN (
    SELECT quarter, from_domain FROM message_quarters WHERE account_id = $1 LIMIT $2);

-- name: erase_versions
-- The next $2 template versions of account $1.
DELETE FROM template_versions WHERE account_id = $1 AND (slug, version) IN (
    SELECT slug, version FROM template_versions WHERE account_id = $1 LIMIT $2);

-- name: leavers
-- People on account $1 who are on no other, locked, with their addresses.
SELECT u.id, u.email FROM members m JOIN users u ON u.id = m.user_id
WHERE m.account_id = $1 AND NOT EXISTS (SELECT 1 FROM members o WHERE o.user_id = m.user_id AND o.account_id <> $1)
ORDER BY u.id FOR UPDATE OF u;

-- name: letters_to
-- At most $2 messages of the service's own account to the addresses $1.
SELECT r.message_id AS id FROM platform p JOIN recipients r ON r.account_id = p.account_id
WHERE lower(r.address) = ANY ($1::text[]) ORDER BY r.message_id LIMIT $2;

-- name: erase_people
-- The people $2 with the addresses $3, and all memberships of account $1. What is theirs goes with them; mail that is
-- still to be sent to them, or to those who were invited, goes too.
WITH member AS (
    DELETE FROM members WHERE account_id = $1
), moved AS (
    UPDATE users SET last_account_id = NULL WHERE last_account_id = $1 AND id <> ALL ($2::uuid[])
), letter AS (
    DELETE FROM system_mail WHERE address = ANY ($3::text[])
       OR (kind = 'invite' AND address IN (SELECT email FROM invites WHERE account_id = $1))
), bounce AS (
    DELETE FROM suppressions WHERE address = ANY ($3::text[]) AND account_id IN (SELECT account_id FROM platform)
), invite AS (
    DELETE FROM invites WHERE account_id = $1
)
DELETE FROM users WHERE id = ANY ($2::uuid[]);

-- name: erase_rest
-- What account $1, public id $2, has few rows of.
WITH template AS (DELETE FROM templates WHERE account_id = $1),
     domain AS (DELETE FROM domains WHERE account_id = $1),
     token AS (DELETE FROM cloudflare_tokens WHERE account_id = $1),
     stream AS (DELETE FROM streams WHERE account_id = $1),
     api_key AS (DELETE FROM api_keys WHERE account_id = $1),
     webhook AS (DELETE FROM webhooks WHERE account_id = $1),
     outcome AS (DELETE FROM account_days WHERE account_id = $1),
     accepted AS (DELETE FROM accepted_days WHERE account_id = $1),
     simulated AS (DELETE FROM simulated_days WHERE account_id = $1),
     judged AS (DELETE FROM outcome_quarters WHERE account_id = $1),
     standing AS (DELETE FROM account_standings WHERE account_id = $1),
     suspension AS (DELETE FROM suspensions WHERE account_id = $1),
     tail AS (DELETE FROM tail_slots WHERE account_id = $1),
     lead AS (DELETE FROM leads WHERE account_id = $1),
     held AS (DELETE FROM holds WHERE kind = 'account' AND target = $2)
DELETE FROM account_records WHERE account_id = $1;

-- name: remaining
-- Whether anything of account $1 has come since it was swept.
SELECT EXISTS (SELECT 1 FROM messages WHERE account_id = $1) OR EXISTS (SELECT 1 FROM events WHERE account_id = $1)
    OR EXISTS (SELECT 1 FROM schedules WHERE account_id = $1) OR EXISTS (SELECT 1 FROM idempotency WHERE account_id = $1)
    OR EXISTS (SELECT 1 FROM suppressions WHERE account_id = $1)
    OR EXISTS (SELECT 1 FROM webhooks w JOIN webhook_queue q ON q.webhook_id = w.id WHERE w.account_id = $1)
    OR EXISTS (SELECT 1 FROM webhooks w JOIN webhook_attempts a ON a.webhook_id = w.id WHERE w.account_id = $1)
    OR EXISTS (SELECT 1 FROM accounts WHERE parent_id = $1) AS something;

-- name: erase_head
-- The head of account $1.
DELETE FROM account_heads WHERE account_id = $1;

-- name: erase_request
-- The request that account $1 be deleted.
DELETE FROM deletions WHERE account_id = $1;

-- name: erase_account
-- Account $1 itself.
DELETE FROM accounts WHERE id = $1;
