-- name: insert_system_mail
-- Mail $1 of kind $2 to address $3 with detail $4, to be sent from $5 on.
INSERT INTO system_mail (id, kind, address, detail, due_at, created_at) VALUES ($1, $2, $3, $4, $5, $5);
