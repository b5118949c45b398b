-- name: take_posts
-- Take at most $2 destinations due at $1; each is postponed by its step in waits $3 (seconds) until its report has been
-- posted. None while the operator holds all mail.
UPDATE tls_report_posts p SET tries = p.tries + 1,
    next_at = $1::timestamptz + make_interval(secs => ($3::float8[])[least(p.tries + 1, cardinality($3::float8[]))])
WHERE (p.day, p.domain, p.url) IN (
    SELECT day, domain, url FROM tls_report_posts WHERE next_at <= $1 ORDER BY next_at LIMIT $2 FOR UPDATE SKIP LOCKED
) AND NOT EXISTS (
    SELECT FROM holds h WHERE h.kind = 'site' AND h.target = '*' AND NOT h.ended AND (h.until IS NULL OR h.until > now()))
RETURNING p.day, p.domain, p.url, p.ends_at;

-- name: posted
-- Record that destination $3 took the report of day $1 on domain $2.
WITH gone AS (DELETE FROM tls_report_posts WHERE day = $1 AND domain = $2 AND url = $3 RETURNING day, domain, url)
UPDATE tls_reports r SET sent_to = r.sent_to || g.url FROM gone g WHERE r.day = g.day AND r.domain = g.domain;

-- name: give_up_post
-- Give up posting the report of day $1 on domain $2 to destination $3.
DELETE FROM tls_report_posts WHERE day = $1 AND domain = $2 AND url = $3;
