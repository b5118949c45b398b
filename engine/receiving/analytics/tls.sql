-- name: arrived
-- Count the TLS reports about domain $1 that arrived from $2 to $3, and the rows that they stored.
SELECT count(*)::int AS reports, coalesce(sum(stored_rows), 0)::int AS stored_rows FROM received_tls_reports
WHERE domain_id = $1 AND received_at BETWEEN $2 AND $3;

-- name: add_report
-- Record a TLS report; no row if it is recorded already. Locks the domain, so that it is not removed meanwhile.
WITH domain AS (
    SELECT id, account_id FROM domains WHERE id = $1 AND deleted_at IS NULL FOR KEY SHARE
)
INSERT INTO received_tls_reports (account_id, domain_id, reporter, report_id, begin_at, day, received_at, stored_rows)
SELECT account_id, id, $2, $3, $4, $5, $6, $7 FROM domain
ON CONFLICT DO NOTHING RETURNING report_id;

-- name: add_rows
-- Add to domain $2 of account $1, on day $3, the sessions $7 and failures $8 by policy type $4, policy domain $5 and
-- result type $6.
INSERT INTO received_tls_rows AS r (account_id, domain_id, day, policy_type, policy_domain, result_type, sessions, failures)
SELECT $1, $2, $3, n.policy_type, n.policy_domain, n.result_type, n.sessions, n.failures
FROM unnest($4::text[], $5::text[], $6::text[], $7::bigint[], $8::bigint[])
     AS n (policy_type, policy_domain, result_type, sessions, failures)
ON CONFLICT (account_id, day, domain_id, policy_type, policy_domain, result_type)
DO UPDATE SET sessions = r.sessions + excluded.sessions, failures = r.failures + excluded.failures;

-- name: sums
-- Sum the rows of account $1 from day $2 to day $3 by domain, policy and result type; of domain $4 and of the domains
-- named $5 only (null: of all); at most $6 rows.
SELECT d.name AS domain, r.policy_type, r.policy_domain, r.result_type, sum(r.sessions)::bigint AS sessions,
       sum(r.failures)::bigint AS failures
FROM received_tls_rows r JOIN domains d ON d.id = r.domain_id AND d.deleted_at IS NULL
WHERE r.account_id = $1 AND r.day BETWEEN $2 AND $3 AND ($4::uuid IS NULL OR r.domain_id = $4)
  AND ($5::text[] IS NULL OR d.name = ANY ($5))
GROUP BY d.name, r.policy_type, r.policy_domain, r.result_type
ORDER BY d.name, r.policy_type, r.policy_domain, r.result_type LIMIT $6;

-- name: totals
-- Sum the sessions of the same rows, and count the reports that they come from.
SELECT coalesce(sum(r.sessions), 0)::bigint AS sessions,
       coalesce(sum(r.failures) FILTER (WHERE r.result_type = ''), 0)::bigint AS failures,
       (SELECT count(*) FROM received_tls_reports p JOIN domains o ON o.id = p.domain_id AND o.deleted_at IS NULL
        WHERE p.account_id = $1 AND p.day BETWEEN $2 AND $3 AND ($4::uuid IS NULL OR p.domain_id = $4)
          AND ($5::text[] IS NULL OR o.name = ANY ($5))) AS reports,
       (SELECT max(p.received_at) FROM received_tls_reports p JOIN domains o ON o.id = p.domain_id AND o.deleted_at IS NULL
        WHERE p.account_id = $1 AND p.day BETWEEN $2 AND $3 AND ($4::uuid IS NULL OR p.domain_id = $4)
          AND ($5::text[] IS NULL OR o.name = ANY ($5))) AS last_report_at
FROM received_tls_rows r JOIN domains d ON d.id = r.domain_id AND d.deleted_at IS NULL
WHERE r.account_id = $1 AND r.day BETWEEN $2 AND $3 AND ($4::uuid IS NULL OR r.domain_id = $4)
  AND ($5::text[] IS NULL OR d.name = ANY ($5));

-- name: forget_rows
-- Delete at most $2 rows of days before $1.
DELETE FROM received_tls_rows WHERE ctid = ANY (ARRAY(SELECT ctid FROM received_tls_rows WHERE day < $1 LIMIT $2));

-- name: forget_reports
-- Delete at most $2 reports of days before $1.
DELETE FROM received_tls_reports WHERE ctid = ANY (ARRAY(SELECT ctid FROM received_tls_reports WHERE day < $1 LIMIT $2));
