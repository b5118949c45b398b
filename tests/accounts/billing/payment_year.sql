-- name: end_state
-- Return the plan and subscription of account $1, its paid charges, and the effects that its events had.
SELECT a.plan, s.plan AS subscribed, s.status, s.anchor, s.number, s.credit, s.cancel_at_period_end, s.next_paid, s.paid_at,
       (SELECT count(*) FROM renewal_charges c WHERE c.account_id = $1 AND c.paid) AS paid,
       (SELECT count(*) FROM provider_events e WHERE e.account_id = $1) AS events,
       (SELECT count(*) FROM provider_events e WHERE e.account_id = $1 AND e.waiting IS NOT NULL) AS waiting
FROM accounts a LEFT JOIN subscriptions s ON s.account_id = a.id WHERE a.id = $1;

-- name: invoices_without_ids
-- Return the invoices and credit notes of account $1 by their periods and amounts.
SELECT kind, status, period_start, period_end, subtotal, tax, total, plan FROM invoices
WHERE account_id = $1 ORDER BY period_start, kind, total;
