-- name: want_certificate
-- Add host $1 of domain $2, due at $3, unless it is known.
INSERT INTO tls_certificates (host, domain_id, due_at) VALUES ($1, $2, $3)
ON CONFLICT (host) DO UPDATE SET domain_id = excluded.domain_id WHERE tls_certificates.domain_id <> excluded.domain_id;

-- name: claim_due_certificate
-- Claim the host that has been due longest at $1 by postponing it to $2; only hosts whose policy's alias leads here.
UPDATE tls_certificates SET due_at = $2
WHERE host IN (
    SELECT c.host FROM tls_certificates c JOIN hosted_sts_policies p ON p.domain_id = c.domain_id
    WHERE c.due_at <= $1 AND p.findings ->> 'cname' = 'ok' ORDER BY c.due_at LIMIT 1 FOR UPDATE OF c SKIP LOCKED)
RETURNING host, domain_id, failures;

-- name: save_certificate
-- Store the certificate of host $1: sealed key $2, chain $3, end $4; the next is due at $5.
UPDATE tls_certificates SET sealed_key = $2, chain = $3, not_after = $4, due_at = $5, failures = 0, error = NULL
WHERE host = $1;

-- name: save_certificate_failure
-- Store a failed try for host $1: error $2, the next at $3.
UPDATE tls_certificates SET failures = failures + 1, error = $2, due_at = $3 WHERE host = $1;

-- name: certificate_ends
-- List all hosts that have a certificate, with its end.
SELECT host, not_after FROM tls_certificates WHERE sealed_key IS NOT NULL;

-- name: read_certificates
-- Read the certificates of hosts $1.
SELECT host, sealed_key, chain, not_after FROM tls_certificates WHERE host = ANY ($1::text[]) AND sealed_key IS NOT NULL;

-- name: read_acme_account
-- Read the account at authority $1.
SELECT sealed_key, url FROM acme_accounts WHERE directory = $1;

-- name: insert_acme_account
-- Store a new account key $2 for authority $1, unless another process has.
INSERT INTO acme_accounts (directory, sealed_key) VALUES ($1, $2) ON CONFLICT DO NOTHING;

-- name: save_acme_account
-- Store the URL $2 of the account at authority $1.
UPDATE acme_accounts SET url = $2 WHERE directory = $1;

-- name: forget_acme_account
-- Forget the URL $2 of the account at authority $1, so that the account is registered again with the same key.
UPDATE acme_accounts SET url = NULL WHERE directory = $1 AND url = $2;

-- name: put_challenge
-- Answer challenge $1 with $2 until $3; deletes expired ones.
WITH expired AS (DELETE FROM acme_challenges WHERE expires_at < now() - interval '1 hour')
INSERT INTO acme_challenges (token, key_authorization, expires_at) VALUES ($1, $2, $3)
ON CONFLICT (token) DO UPDATE SET key_authorization = excluded.key_authorization, expires_at = excluded.expires_at;

-- name: read_challenge
-- Read the answer to challenge $1.
SELECT key_authorization FROM acme_challenges WHERE token = $1 AND expires_at > now();
