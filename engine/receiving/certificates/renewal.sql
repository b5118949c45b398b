-- name: wanted_hosts
-- Return at most $1 domains whose policy host leads here and is not listed for a certificate yet.
SELECT d.id, d.name FROM hosted_sts_policies p JOIN domains d ON d.id = p.domain_id
WHERE d.deleted_at IS NULL AND p.findings ->> 'cname' = 'ok' AND NOT coalesce((p.findings ->> 'wildcard')::boolean, false)
  AND NOT EXISTS (SELECT 1 FROM tls_certificates c WHERE c.domain_id = p.domain_id)
ORDER BY d.id LIMIT $1;
