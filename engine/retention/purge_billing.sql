-- name: delete_old_invoices
-- Delete at most $2 invoices and credit notes with ids below $1.
DELETE FROM invoices WHERE id IN (SELECT id FROM invoices WHERE id < $1 ORDER BY id LIMIT $2);

-- name: delete_old_checkouts
-- Delete at most $2 checkouts with ids below $1.
DELETE FROM checkouts WHERE id IN (SELECT id FROM checkouts WHERE id < $1 ORDER BY id LIMIT $2);

-- name: delete_old_charges
-- Delete at most $2 requests to charge renewals with ids below $1.
DELETE FROM renewal_charges WHERE id IN (SELECT id FROM renewal_charges WHERE id < $1 ORDER BY id LIMIT $2);

-- name: delete_old_payment_events
-- Delete at most $2 events of payment providers that were received before $1.
DELETE FROM provider_events WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM provider_events WHERE received_at < $1 ORDER BY received_at LIMIT $2));

-- name: delete_old_notices
-- Delete at most $2 counts of unsigned refund notices of days before $1.
DELETE FROM refund_notices WHERE ctid = ANY (ARRAY(SELECT ctid FROM refund_notices WHERE day < $1 ORDER BY day LIMIT $2));

-- name: old_histories
-- Return at most $3 accounts after $2 whose billing history has events from before $1, in the order of ids.
SELECT DISTINCT account_id FROM billing_events WHERE occurred_at < $1 AND account_id > $2 ORDER BY account_id LIMIT $3;

-- name: shorten_history
-- Delete at most $3 events from the beginning of the billing history of account $1, up to the first from $2 or later.
WITH head AS MATERIALIZED (
    SELECT purged_through_seq FROM billing_heads WHERE account_id = $1 FOR NO KEY UPDATE
), kept AS (
    SELECT min(seq) AS first FROM billing_events WHERE account_id = $1 AND occurred_at >= $2
), last AS (
    SELECT e.seq, e.hash FROM head, kept, billing_events e
    WHERE e.account_id = $1 AND e.seq > head.purged_through_seq AND e.seq <= head.purged_through_seq + $3
      AND (kept.first IS NULL OR e.seq < kept.first)
    ORDER BY e.seq DESC LIMIT 1
), moved AS (
    UPDATE billing_heads h SET purged_through_seq = last.seq, purged_hash = last.hash FROM last WHERE h.account_id = $1
)
DELETE FROM billing_events e USING last WHERE e.account_id = $1 AND e.seq <= last.seq;

-- name: forget_history
-- Delete the head of the billing history of account $1 if the account was erased and no event is left.
DELETE FROM billing_heads h WHERE h.account_id = $1 AND h.purged_through_seq = h.seq
  AND NOT EXISTS (SELECT FROM accounts a WHERE a.id = h.account_id);
