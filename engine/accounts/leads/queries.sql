-- name: insert_lead
-- Insert enquiry $1 to account $2 from person $3 with address $4, company $5 and message $6, at $7.
INSERT INTO leads (id, account_id, name, email, company, message, created_at) VALUES ($1, $2, $3, $4, $5, $6, $7);
