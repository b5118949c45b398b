-- name: count_sessions
-- Add sessions: days $1, domains $2, policies $3, results $4, mail hosts $5, addresses $6, reasons $7, numbers $8.
INSERT INTO tls_days (day, domain, policy, result, mx, ip, reason, sessions)
SELECT * FROM unnest($1::date[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::bigint[])
ON CONFLICT (day, domain, policy, result, mx) DO UPDATE
SET sessions = tls_days.sessions + EXCLUDED.sessions, ip = EXCLUDED.ip, reason = EXCLUDED.reason;

-- name: forget_days
-- Delete the counts of days before $1.
DELETE FROM tls_days WHERE day < $1;
