-- name: begin_trace
-- Watch domain $2 until $3 as trace $1; one that stands is prolonged.
INSERT INTO traces (id, domain, expires_at) VALUES ($1, $2, $3) ON CONFLICT (id) DO UPDATE SET expires_at = EXCLUDED.expires_at;

-- name: end_trace
-- Trace $1 is over, and those that nobody ended.
DELETE FROM traces WHERE id = $1 OR expires_at < now();
