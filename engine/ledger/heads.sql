-- name: lock_heads
-- Lock and return the heads of the accounts $1 (ascending), in the order of ids.
SELECT h.account_id, h.seq, h.hash, h.rung, h.day, h.sent_today, h.month, h.sent_this_month, a.plan, a.status, a.daily_cap,
       a.monthly_cap, h.scheduled, a.parent_id, a.xmin AS account_version, a.agreed_caps
FROM account_heads h JOIN accounts a ON a.id = h.account_id
WHERE h.account_id = ANY($1::uuid[])
ORDER BY h.account_id
FOR NO KEY UPDATE OF h;

-- name: lock_counted
-- Lock and return the heads of the accounts $1 and of their parents, in the order of ids.
SELECT h.account_id, h.seq, h.hash, h.rung, h.day, h.sent_today, h.month, h.sent_this_month, a.plan, a.status, a.daily_cap,
       a.monthly_cap, h.scheduled, a.parent_id, a.xmin AS account_version, a.agreed_caps
FROM account_heads h JOIN accounts a ON a.id = h.account_id
WHERE h.account_id = ANY (ARRAY(
    SELECT unnest($1::uuid[])
    UNION ALL SELECT c.parent_id FROM accounts c WHERE c.id = ANY($1::uuid[]) AND c.parent_id IS NOT NULL))
ORDER BY h.account_id
FOR NO KEY UPDATE OF h;

-- name: read_head
-- Return the head of account $1 without a lock.
SELECT h.account_id, h.seq, h.hash, h.rung, h.day, h.sent_today, h.month, h.sent_this_month, a.plan, a.status, a.daily_cap,
       a.monthly_cap, h.scheduled, a.parent_id, a.xmin AS account_version, a.agreed_caps
FROM account_heads h JOIN accounts a ON a.id = h.account_id
WHERE h.account_id = $1;

-- name: read_heads
-- Return the heads of the accounts $1 and of their parents without a lock.
SELECT h.account_id, h.seq, h.hash, h.rung, h.day, h.sent_today, h.month, h.sent_this_month, a.plan, a.status, a.daily_cap,
       a.monthly_cap, h.scheduled, a.parent_id, a.xmin AS account_version, a.agreed_caps
FROM account_heads h JOIN accounts a ON a.id = h.account_id
WHERE h.account_id = ANY (ARRAY(
    SELECT unnest($1::uuid[])
    UNION SELECT c.parent_id FROM accounts c WHERE c.id = ANY($1::uuid[]) AND c.parent_id IS NOT NULL));

-- name: save_heads
-- Store heads.
UPDATE account_heads h
SET seq = head.seq, hash = head.hash, rung = head.rung, day = head.day, sent_today = head.sent_today,
    month = head.month, sent_this_month = head.sent_this_month, scheduled = head.scheduled
FROM :head
WHERE h.account_id = head.account_id;
