-- name: insert_lead
-- Enquiry $1 at account $2 by $3 with address $4 of company $5, saying $6, at $7.
INSERT INTO leads (id, account_id, name, email, company, message, created_at) VALUES ($1, $2, $3, $4, $5, $6, $7);
