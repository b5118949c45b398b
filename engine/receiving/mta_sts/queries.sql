-- fragment: policy_columns
-- Columns of HostedPolicyRow, of the policy `p` in domain `d`, with the totals `t` of its TLS reports.
p.domain_id, p.account_id, d.name AS domain, p.mode, p.max_age_s, p.policy_id, p.updated_at, p.checked_at,
    p.findings::text AS findings, coalesce(t.sessions, 0)::bigint AS sessions, coalesce(t.failures, 0)::bigint AS failures,
    t.last_report_at

-- fragment: policy_tables
-- The policy, its domain and the totals of 30 days of TLS reports.
hosted_sts_policies p JOIN domains d ON d.id = p.domain_id AND d.deleted_at IS NULL
LEFT JOIN LATERAL (
    SELECT (SELECT sum(r.sessions) FROM received_tls_rows r WHERE r.domain_id = p.domain_id AND r.day > now()::date - 30
            AND r.result_type = '') AS sessions,
           (SELECT sum(r.failures) FROM received_tls_rows r WHERE r.domain_id = p.domain_id AND r.day > now()::date - 30
            AND r.result_type = '') AS failures,
           (SELECT max(r.received_at) FROM received_tls_reports r WHERE r.domain_id = p.domain_id
            AND r.received_at > now() - interval '30 days') AS last_report_at
) t ON true

-- name: list_policies
-- List policies of account $1, newest first, at most $3, after that of domain $2 (null: from the newest); of domains $4
-- (null: any).
SELECT :policy_columns FROM :policy_tables
WHERE p.account_id = $1 AND ($2::uuid IS NULL OR p.id < (SELECT c.id FROM hosted_sts_policies c WHERE c.domain_id = $2 AND c.account_id = $1))
  AND ($4::text[] IS NULL OR d.name = ANY ($4))
ORDER BY p.id DESC LIMIT $3;

-- name: read_policy
-- Read the policy of domain $1.
SELECT :policy_columns FROM :policy_tables WHERE p.domain_id = $1;

-- name: claim_due_policies
-- Claim at most $2 policies whose check is due at $1, by postponing them to $3.
WITH due AS (
    UPDATE hosted_sts_policies SET check_at = $3
    WHERE domain_id IN (
        SELECT domain_id FROM hosted_sts_policies WHERE check_at <= $1 ORDER BY check_at LIMIT $2 FOR UPDATE SKIP LOCKED)
    RETURNING domain_id
)
SELECT :policy_columns FROM :policy_tables JOIN due ON due.domain_id = p.domain_id;

-- name: served_policy
-- Read the policy of the domain named $1: of the account that has the name verified, else of the newest domain.
SELECT p.mode, p.max_age_s FROM hosted_sts_policies p JOIN domains d ON d.id = p.domain_id
WHERE d.name = $1 AND d.deleted_at IS NULL ORDER BY (d.status = 'verified') DESC, d.id DESC LIMIT 1;

-- name: policy_findings
-- Read the findings of the policies of all domains named $1 that are not removed.
SELECT p.findings::text AS findings FROM hosted_sts_policies p JOIN domains d ON d.id = p.domain_id
WHERE d.name = $1 AND d.deleted_at IS NULL;

-- name: save_policy
-- Store the policy of domain $1 of account $2: mode $3, max_age $4, policy id $5, changed at $6; it is checked at once.
-- $7: the id of the row if it is new.
INSERT INTO hosted_sts_policies (domain_id, account_id, mode, max_age_s, policy_id, updated_at, check_at, id)
VALUES ($1, $2, $3, $4, $5, $6, $6, $7)
ON CONFLICT (domain_id) DO UPDATE
SET mode = excluded.mode, max_age_s = excluded.max_age_s, policy_id = excluded.policy_id, updated_at = excluded.updated_at,
    check_at = excluded.check_at;

-- name: save_findings
-- Store findings $2 of a check of domain $1 at $3; the next is due at $4.
UPDATE hosted_sts_policies SET findings = $2::text::jsonb, checked_at = $3, check_at = $4 WHERE domain_id = $1;
