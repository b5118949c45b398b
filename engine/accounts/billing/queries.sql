-- fragment: subscription_columns
-- The columns of SubscriptionRow.
account_id, plan, status, billing_interval, currency, amount, anchor, number, credit, cancel_at_period_end,
pause_at_period_end, next_paid, pending_plan, pending_interval, pending_amount, paid_at, look_at, provider, reference

-- fragment: checkout_columns
-- The columns of CheckoutRow.
id, account_id, plan, billing_interval, currency, price, credit, tax, tax_rate, reverse_charge, amount, buyer, status,
provider, url, created_at, expires_at

-- fragment: charge_columns
-- The columns of RenewalChargeRow.
id, account_id, plan, billing_interval, currency, price, credit, tax, tax_rate, reverse_charge, amount, buyer,
period_start, paid, tries, due_at

-- fragment: invoice_columns
-- The columns of InvoiceRow.
id, account_id, number, kind, status, issued_at, period_start, period_end, plan, billing_interval, currency, subtotal, tax,
total, tax_rate, reverse_charge, lines, seller, buyer, corrects, payment

-- name: read_subscription
-- Return the subscription of account $1.
SELECT :subscription_columns FROM subscriptions WHERE account_id = $1;

-- name: due_subscriptions
-- Return at most $2 accounts whose subscription is to be looked at by $1, the longest waiting first.
SELECT account_id FROM subscriptions
WHERE look_at <= $1 AND account_id NOT IN (SELECT v.account_id FROM account_moves v) ORDER BY look_at LIMIT $2;

-- name: put_subscription
-- Store a subscription; a null provider or reference keeps what is stored.
INSERT INTO subscriptions AS s (:stored.names, updated_at) SELECT stored.*, now() FROM :stored
ON CONFLICT (account_id) DO UPDATE SET
    plan = excluded.plan, status = excluded.status, billing_interval = excluded.billing_interval,
    currency = excluded.currency, amount = excluded.amount, anchor = excluded.anchor, number = excluded.number,
    credit = excluded.credit, cancel_at_period_end = excluded.cancel_at_period_end,
    pause_at_period_end = excluded.pause_at_period_end, next_paid = excluded.next_paid,
    pending_plan = excluded.pending_plan, pending_interval = excluded.pending_interval,
    pending_amount = excluded.pending_amount, paid_at = excluded.paid_at, look_at = excluded.look_at,
    provider = coalesce(excluded.provider, s.provider), reference = coalesce(excluded.reference, s.reference),
    updated_at = now();

-- name: delete_subscription
-- Delete the subscription of account $1.
DELETE FROM subscriptions WHERE account_id = $1;

-- name: billing_account
-- Return the plan, status and parent of account $1.
SELECT plan, status, parent_id FROM accounts WHERE id = $1;

-- name: set_plan
-- Set the plan of account $1 to $2; its sub-accounts follow.
UPDATE accounts SET plan = $2 WHERE id = $1;

-- name: keep_retention
-- Keep the records of account $1 and its sub-accounts for $2 days until $3; a longer time that holds already stays.
INSERT INTO kept_retentions AS k (account_id, days, until)
SELECT id, $2, $3 FROM accounts WHERE id = $1 OR parent_id = $1
ON CONFLICT (account_id) DO UPDATE SET
    days = CASE WHEN k.until > now() THEN greatest(k.days, excluded.days) ELSE excluded.days END, until = excluded.until;

-- name: read_profile
-- Return the billing profile of account $1.
SELECT legal_name, country, address, tax_id, email FROM billing_profiles WHERE account_id = $1;

-- name: put_profile
-- Store the billing profile of account $1.
INSERT INTO billing_profiles (account_id, legal_name, country, address, tax_id, email, updated_at)
VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (account_id) DO UPDATE SET legal_name = excluded.legal_name, country = excluded.country,
    address = excluded.address, tax_id = excluded.tax_id, email = excluded.email, updated_at = excluded.updated_at;

-- name: open_checkout
-- Return the open checkout of account $1.
SELECT :checkout_columns FROM checkouts WHERE account_id = $1 AND status = 'open';

-- name: read_checkout
-- Return checkout $1.
SELECT :checkout_columns FROM checkouts WHERE id = $1;

-- name: insert_checkout
-- Insert a checkout.
INSERT INTO checkouts (:opened.names) SELECT * FROM :opened;

-- name: set_checkout_status
-- Set the status of checkout $1 to $2.
UPDATE checkouts SET status = $2 WHERE id = $1;

-- name: set_checkout_url
-- Set the page of checkout $1 at its provider to $2.
UPDATE checkouts SET url = $2 WHERE id = $1;

-- name: read_charge
-- Return the request to charge account $1 for the period that begins at $2.
SELECT :charge_columns FROM renewal_charges WHERE account_id = $1 AND period_start = $2;

-- name: insert_charge
-- Insert the request to charge account $1 for a period, due at once; one that exists stays.
INSERT INTO renewal_charges (:charge.names) SELECT * FROM :charge
ON CONFLICT (account_id, period_start) DO NOTHING;

-- name: due_charges
-- Return at most $2 requests that are due by $1, and put them off until $3.
UPDATE renewal_charges SET due_at = $3, tries = tries + 1
WHERE id IN (
    SELECT id FROM renewal_charges WHERE due_at <= $1 AND account_id NOT IN (SELECT v.account_id FROM account_moves v)
    ORDER BY due_at LIMIT $2 FOR UPDATE SKIP LOCKED)
RETURNING :charge_columns;

-- name: charge_taken
-- Record that the provider took request $1.
UPDATE renewal_charges SET due_at = NULL WHERE id = $1;

-- name: charge_paid
-- Record that the period of account $1 that begins at $2 is paid.
UPDATE renewal_charges SET paid = true, due_at = NULL WHERE account_id = $1 AND period_start = $2;

-- name: is_event_known
-- Return a row if event $2 of provider $1 is recorded.
SELECT effect FROM provider_events WHERE provider = $1 AND event_id = $2;

-- name: insert_provider_event
-- Record event $2 of provider $1, unless it is recorded.
INSERT INTO provider_events (provider, event_id, type, account_id, effect, created_at, received_at)
VALUES ($1, $2, $3, $4, $5, $6, now())
ON CONFLICT DO NOTHING;

-- name: provider_events_of
-- Return the newest $2 events of payment providers about account $1.
SELECT provider, event_id, type, effect, received_at FROM provider_events
WHERE account_id = $1 ORDER BY received_at DESC LIMIT $2;

-- name: set_effect
-- Record the effect $3 of event $2 of provider $1; $4 is its content if it waits for another event, else null.
UPDATE provider_events SET effect = $3, waiting = $4::text::jsonb WHERE provider = $1 AND event_id = $2;

-- name: waiting_events
-- Return the events about account $1 that wait for another one, the oldest first.
SELECT provider, event_id, waiting::text AS waiting FROM provider_events
WHERE account_id = $1 AND waiting IS NOT NULL ORDER BY created_at, event_id;

-- name: happened_since
-- Return a row if the billing history of account $1 has an event of type $2 from $3 or later.
SELECT 1 FROM billing_events WHERE account_id = $1 AND type = $2 AND occurred_at >= $3 LIMIT 1;

-- name: next_invoice_number
-- Draw the next invoice number of year $1.
INSERT INTO invoice_numbers AS n (year, latest) VALUES ($1, 1)
ON CONFLICT (year) DO UPDATE SET latest = n.latest + 1 RETURNING latest;

-- name: insert_invoice
-- Insert an invoice.
INSERT INTO invoices (:issued.names) SELECT * FROM :issued;

-- name: read_invoice
-- Return invoice $2 of account $1.
SELECT :invoice_columns FROM invoices WHERE account_id = $1 AND id = $2;

-- name: read_any_invoice
-- Return the invoice with id $1, or with number $2, of any account.
SELECT :invoice_columns FROM invoices WHERE id = $1 OR number = $2;

-- name: invoice_of_payment
-- Return the invoice that was paid by checkout or renewal charge $1.
SELECT :invoice_columns FROM invoices WHERE payment = $1;

-- name: list_invoices
-- Return at most $3 invoices of account $1, older than $2 where it is given, newest first.
SELECT :invoice_columns FROM invoices WHERE account_id = $1 AND ($2::uuid IS NULL OR id < $2) ORDER BY id DESC LIMIT $3;

-- name: mark_refunded
-- Mark invoice $1 as refunded.
UPDATE invoices SET status = 'refunded' WHERE id = $1;

-- name: refunded_so_far
-- Return the total of the credit notes that correct invoice number $1.
SELECT coalesce(-sum(total), 0)::bigint AS total FROM invoices WHERE corrects = $1;

-- name: read_pdf
-- Return the stored PDF of invoice $1.
SELECT pdf FROM invoices WHERE id = $1;

-- name: put_pdf
-- Store the PDF of invoice $1 unless it has one, and return the one that it has then.
UPDATE invoices SET pdf = coalesce(pdf, $2) WHERE id = $1 RETURNING pdf;

-- name: count_notice
-- Count an unsigned refund notice about $1 on day $2.
INSERT INTO refund_notices AS n (subject, day, notices) VALUES ($1, $2, 1)
ON CONFLICT (subject, day) DO UPDATE SET notices = n.notices + 1 RETURNING notices;

-- name: notice_subject
-- Return the account of the checkout or invoice with id $1.
SELECT account_id FROM checkouts WHERE id = $1 UNION ALL SELECT account_id FROM invoices WHERE id = $1;
