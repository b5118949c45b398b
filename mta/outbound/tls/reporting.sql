-- name: unreported_domains
-- At most $2 policy domains with sessions on day $1 of which no report has been made.
SELECT DISTINCT t.domain FROM tls_days t
WHERE t.day = $1 AND NOT EXISTS (SELECT FROM tls_reports r WHERE r.day = t.day AND r.domain = t.domain)
ORDER BY t.domain LIMIT $2;

-- name: reported
-- Record that the report of day $1 on domain $2 went to mailboxes $3 as message $4; post it to URLs $5 from $6 to $7.
WITH made AS (
    INSERT INTO tls_reports (day, domain, sent_to, message_id, made_at) VALUES ($1, $2, $3, $4, now()) ON CONFLICT DO NOTHING
    RETURNING day, domain
)
INSERT INTO tls_report_posts (day, domain, url, next_at, ends_at)
SELECT m.day, m.domain, u.url, $6, $7 FROM made m, unnest($5::text[]) AS u (url);

-- name: account_of_domain
-- The account that holds domain $1 as verified.
SELECT account_id FROM domains WHERE name = $1 AND status = 'verified' AND deleted_at IS NULL LIMIT 1;

-- name: forget_reports
-- Delete the reports about days before $1.
DELETE FROM tls_reports WHERE day < $1;
