-- name: insert_system_mail
-- Mail $1 of kind $2 to address $3 with detail $4, to be sent from $5 on.
INSERT INTO system_mail (id, kind, address, detail, due_at, created_at) VALUES ($1, $2, $3, $4, $5, $5);

-- name: take_due_mail
-- At most $2 mails due at $1, put off to $3: taken by nobody else until then.
UPDATE system_mail SET due_at = $3, attempts = attempts + 1
WHERE id IN (SELECT id FROM system_mail WHERE due_at <= $1 ORDER BY due_at, id LIMIT $2 FOR UPDATE SKIP LOCKED)
RETURNING id, kind, address, detail::text AS detail, attempts, created_at;

-- name: put_off_mail
-- Mail $1 is tried again at $2.
UPDATE system_mail SET due_at = $2 WHERE id = $1;

-- name: note_in_mail
-- Mail $1 knows $2 (a JSON object) beside what it knew.
UPDATE system_mail SET detail = detail || $2::text::jsonb WHERE id = $1;

-- name: drop_mail
-- Mail $1 is done with.
DELETE FROM system_mail WHERE id = $1;

-- name: drop_old_mail
-- Mails written down before $1 are told no more, at most $2.
DELETE FROM system_mail WHERE id IN (SELECT id FROM system_mail WHERE created_at < $1 LIMIT $2) RETURNING id, kind;

-- name: waiting_mail
-- How many mails wait, and since when the oldest does.
SELECT count(*) AS waiting, min(created_at) AS oldest FROM system_mail;
