-- name: reported_domain
-- Read domain $1, unless it was removed or its account is being closed.
SELECT d.id, d.account_id, d.name FROM domains d JOIN accounts a ON a.id = d.account_id
WHERE d.id = $1 AND d.deleted_at IS NULL AND a.status <> 'closing';

-- name: domain_named
-- Read domain $2 of account $1 by name.
SELECT id, account_id, name FROM domains WHERE account_id = $1 AND name = $2 AND deleted_at IS NULL;

-- name: arrived
-- Count the DMARC reports about domain $1 that arrived from $2 to $3, and the rows that they stored.
SELECT count(*)::int AS reports, coalesce(sum(stored_rows), 0)::int AS stored_rows FROM dmarc_reports
WHERE domain_id = $1 AND received_at BETWEEN $2 AND $3;

-- name: add_report
-- Record a DMARC report; no row if it is recorded already. Locks the domain, so that it is not removed meanwhile.
WITH domain AS (
    SELECT id, account_id FROM domains WHERE id = $1 AND deleted_at IS NULL FOR KEY SHARE
)
INSERT INTO dmarc_reports (account_id, domain_id, reporter, report_id, begin_at, end_at, day, received_at,
                           stored_rows)
SELECT account_id, id, $2, $3, $4, $5, $6, $7, $8 FROM domain
ON CONFLICT DO NOTHING RETURNING report_id;

-- name: add_rows
-- Add to domain $2 of account $1, on day $3, the messages $9 of sources $4 by header domain $5, alignment $6 (DKIM) and
-- $7 (SPF), and disposition $8.
INSERT INTO dmarc_rows AS r (account_id, domain_id, day, source_ip, header_from, dkim_aligned, spf_aligned, disposition,
                             messages)
SELECT $1, $2, $3, n.source_ip::inet, n.header_from, n.dkim, n.spf, n.disposition, n.messages
FROM unnest($4::text[], $5::text[], $6::boolean[], $7::boolean[], $8::text[], $9::bigint[])
     AS n (source_ip, header_from, dkim, spf, disposition, messages)
ON CONFLICT (account_id, day, domain_id, source_ip, header_from, dkim_aligned, spf_aligned, disposition)
DO UPDATE SET messages = r.messages + excluded.messages;

-- name: sources
-- Sum the rows of account $1 from day $2 to day $3 by source, those with the most messages first, at most $6 sources; of
-- domain $4 and of the domains named $5 only (null: of all). Messages of all sources that are stored as one sum have none.
SELECT host(r.source_ip) AS source_ip, sum(r.messages)::bigint AS messages,
       coalesce(sum(r.messages) FILTER (WHERE r.dkim_aligned OR r.spf_aligned), 0)::bigint AS aligned,
       coalesce(sum(r.messages) FILTER (WHERE r.spf_aligned), 0)::bigint AS spf_aligned,
       coalesce(sum(r.messages) FILTER (WHERE r.dkim_aligned), 0)::bigint AS dkim_aligned,
       coalesce(sum(r.messages) FILTER (WHERE r.disposition = 'none'), 0)::bigint AS none,
       coalesce(sum(r.messages) FILTER (WHERE r.disposition = 'quarantine'), 0)::bigint AS quarantine,
       coalesce(sum(r.messages) FILTER (WHERE r.disposition = 'reject'), 0)::bigint AS reject,
       (array_agg(DISTINCT r.header_from ORDER BY r.header_from))[1:20] AS header_from
FROM dmarc_rows r JOIN domains d ON d.id = r.domain_id AND d.deleted_at IS NULL
WHERE r.account_id = $1 AND r.day BETWEEN $2 AND $3 AND ($4::uuid IS NULL OR r.domain_id = $4)
  AND ($5::text[] IS NULL OR d.name = ANY ($5)) AND r.source_ip <> '0.0.0.0/0'
GROUP BY r.source_ip ORDER BY messages DESC, r.source_ip LIMIT $6;

-- name: failed_streams
-- Return the streams, at most 20, on which the From domains of failed messages of sources $6 sent on the days of those
-- failures, with the conditions of `sources`.
WITH failed AS (
    SELECT DISTINCT r.source_ip, r.day, r.header_from
    FROM dmarc_rows r JOIN domains d ON d.id = r.domain_id AND d.deleted_at IS NULL
    WHERE r.account_id = $1 AND r.day BETWEEN $2 AND $3 AND ($4::uuid IS NULL OR r.domain_id = $4)
      AND ($5::text[] IS NULL OR d.name = ANY ($5)) AND r.source_ip = ANY ($6::text[]::inet[])
      AND NOT (r.dkim_aligned OR r.spf_aligned)
), sent AS (
    SELECT DISTINCT day, from_domain, stream FROM delivery_groups
    WHERE account_id = $1 AND tag = '' AND day BETWEEN $2 AND $3
      AND from_domain = ANY (ARRAY(SELECT header_from FROM failed))
)
SELECT host(failed.source_ip) AS source_ip, (array_agg(DISTINCT sent.stream ORDER BY sent.stream))[1:20] AS streams
FROM failed JOIN sent ON sent.day = failed.day AND sent.from_domain = failed.header_from
GROUP BY failed.source_ip;

-- name: totals
-- Sum the same rows as `sources` over all sources, those stored as one sum as one of them, and count the reports that they come from.
SELECT count(DISTINCT r.source_ip) AS sources, coalesce(sum(r.messages), 0)::bigint AS messages,
       coalesce(sum(r.messages) FILTER (WHERE r.dkim_aligned OR r.spf_aligned), 0)::bigint AS aligned,
       coalesce(sum(r.messages) FILTER (WHERE r.spf_aligned), 0)::bigint AS spf_aligned,
       coalesce(sum(r.messages) FILTER (WHERE r.dkim_aligned), 0)::bigint AS dkim_aligned,
       coalesce(sum(r.messages) FILTER (WHERE r.disposition = 'none'), 0)::bigint AS none,
       coalesce(sum(r.messages) FILTER (WHERE r.disposition = 'quarantine'), 0)::bigint AS quarantine,
       coalesce(sum(r.messages) FILTER (WHERE r.disposition = 'reject'), 0)::bigint AS reject,
       (SELECT count(*) FROM dmarc_reports p JOIN domains o ON o.id = p.domain_id AND o.deleted_at IS NULL
        WHERE p.account_id = $1 AND p.day BETWEEN $2 AND $3 AND ($4::uuid IS NULL OR p.domain_id = $4)
          AND ($5::text[] IS NULL OR o.name = ANY ($5))) AS reports
FROM dmarc_rows r JOIN domains d ON d.id = r.domain_id AND d.deleted_at IS NULL
WHERE r.account_id = $1 AND r.day BETWEEN $2 AND $3 AND ($4::uuid IS NULL OR r.domain_id = $4)
  AND ($5::text[] IS NULL OR d.name = ANY ($5));

-- name: forget_rows
-- Delete at most $2 rows of days before $1.
DELETE FROM dmarc_rows WHERE ctid = ANY (ARRAY(SELECT ctid FROM dmarc_rows WHERE day < $1 LIMIT $2));

-- name: forget_reports
-- Delete at most $2 reports of days before $1.
DELETE FROM dmarc_reports WHERE ctid = ANY (ARRAY(SELECT ctid FROM dmarc_reports WHERE day < $1 LIMIT $2));
