-- name: count_invoices
-- Count all invoices.
SELECT count(*) AS invoices FROM invoices;
