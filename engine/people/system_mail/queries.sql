-- name: insert_system_mail
-- Insert mail $1 of kind $2 to address $3 with detail $4, due at $5.
INSERT INTO system_mail (id, kind, address, detail, due_at, created_at) VALUES ($1, $2, $3, $4, $5, $5);

-- name: insert_system_mails
-- Insert mails $1 of kind $2 to addresses $3 with details $4, due at $5.
INSERT INTO system_mail (id, kind, address, detail, due_at, created_at)
SELECT n.id, $2, n.address, n.detail::jsonb, $5, $5 FROM unnest($1::uuid[], $3::text[], $4::text[]) AS n (id, address, detail);

-- name: take_due_mail
-- Claim at most $2 mails due at $1, by postponing them to $3.
UPDATE system_mail SET due_at = $3, attempts = attempts + 1
WHERE id IN (SELECT id FROM system_mail WHERE due_at <= $1 ORDER BY due_at, id LIMIT $2 FOR UPDATE SKIP LOCKED)
RETURNING id, kind, address, detail::text AS detail, attempts, created_at;

-- name: put_off_mail
-- Retry mail $1 at $2.
UPDATE system_mail SET due_at = $2 WHERE id = $1;

-- name: note_in_mail
-- Add $2 (a JSON object) to the detail of mail $1.
UPDATE system_mail SET detail = detail || $2::text::jsonb WHERE id = $1;

-- name: drop_mail
-- Delete mail $1.
DELETE FROM system_mail WHERE id = $1;

-- name: drop_old_mail
-- Delete at most $2 mails queued before $1.
DELETE FROM system_mail WHERE id IN (SELECT id FROM system_mail WHERE created_at < $1 LIMIT $2) RETURNING id, kind;

-- name: waiting_mail
-- Count the queued mails and return the time of the oldest.
SELECT count(*) AS waiting, min(created_at) AS oldest FROM system_mail;
