-- name: begin_trace
-- Start trace $1 of domain $2 until $3, or prolong it.
INSERT INTO traces (id, domain, expires_at) VALUES ($1, $2, $3) ON CONFLICT (id) DO UPDATE SET expires_at = EXCLUDED.expires_at;

-- name: end_trace
-- Delete trace $1 and all expired traces.
DELETE FROM traces WHERE id = $1 OR expires_at < pg_catalog.now();
