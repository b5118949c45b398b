-- name: add_reports
-- Store received report mails, due at once. One with the body of a stored mail to the same local part is left out.
INSERT INTO report_mails (:report.names)
SELECT report.* FROM :report ORDER BY report.local, report.digest
ON CONFLICT (local, digest) DO NOTHING;

-- name: take_reports
-- Take at most $2 waiting report mails that are due at $1, oldest first, and put each off until $3, in case this process
-- ends before it has read them. The last one is that with which they reach $4 octets. $5: those about domains, or all
-- others. Rows that another process is taking are skipped.
WITH due AS MATERIALIZED (
    SELECT id, due_at, size_bytes FROM report_mails
    WHERE state = 'waiting' AND (purpose IN ('dmarc', 'tls')) = $5::boolean AND due_at <= $1
    ORDER BY due_at, id LIMIT $2 FOR NO KEY UPDATE SKIP LOCKED
), taken AS (
    SELECT id, sum(size_bytes) OVER (ORDER BY due_at, id) - size_bytes AS octets_before FROM due
)
UPDATE report_mails r SET due_at = $3, tries = least(r.tries + 1, 32000) FROM taken
WHERE r.id = taken.id AND taken.octets_before < $4
RETURNING r.id, r.purpose, r.local, r.host, r.received_at, r.tries::int AS tries, r.raw,
          r.reporter_address, r.signed_by;

-- name: lock_waiting
-- Lock those of the report mails $1 that are still waiting.
SELECT id FROM report_mails WHERE id = ANY ($1::uuid[]) AND state = 'waiting' ORDER BY id FOR NO KEY UPDATE;

-- fragment: report_finish
-- The statement that records the results of report mails that are still waiting. Those that were applied lose their
-- bytes, as do those over 64 KiB, and those about sealed messages and about messages that do not retain their content:
-- they may quote codes, links, addresses and content.
UPDATE report_mails r
SET state = finish.state, result = finish.result, reason = finish.reason, account_id = finish.account_id,
    message_id = finish.message_id,
    raw = CASE WHEN finish.state = 'applied' OR (octet_length(r.raw) > 65536 AND r.purpose <> 'operator') OR EXISTS (
        SELECT FROM (SELECT source, content_hours FROM messages WHERE id = finish.message_id OFFSET 0) m
        WHERE is_sealed_source(m.source) OR m.content_hours IS NOT NULL) THEN NULL ELSE r.raw END
FROM :finish
WHERE r.id = finish.id AND r.state = 'waiting'

-- name: finish_reports
-- Record the results of report mails.
:report_finish;

-- name: drop_report
-- Delete report mail $1.
DELETE FROM report_mails WHERE id = $1;

-- name: postpone_reports
-- Put the waiting report mails $1 off until $2.
UPDATE report_mails SET due_at = $2 WHERE id = ANY ($1::uuid[]) AND state = 'waiting';

-- name: forget_reports
-- Delete at most $2 report mails with ids below $1.
DELETE FROM report_mails WHERE id IN (SELECT id FROM report_mails WHERE id < $1 ORDER BY id LIMIT $2);

-- name: used_octets
-- Add up the octets of the report mails, with $1 for each row. TOAST knows the length of a value without reading it; those
-- that were applied have none.
SELECT sum(mails * $1::bigint + octets)::bigint AS octets FROM (
    SELECT count(*) AS mails, coalesce(sum(octet_length(raw)), 0) AS octets FROM report_mails WHERE state = 'waiting'
    UNION ALL
    SELECT count(*), coalesce(sum(octet_length(raw)), 0) FROM report_mails WHERE state IN ('ignored', 'unreadable')
    UNION ALL
    SELECT count(*), 0 FROM report_mails WHERE state = 'applied'
) each;

-- name: forget_beyond
-- Delete the oldest report mails that have been read, so that those that are left use at most $1 octets, with $2 for each
-- row.
DELETE FROM report_mails WHERE id IN (
    SELECT id FROM (
        SELECT id, sum($2::bigint + coalesce(octet_length(raw), 0)) OVER (ORDER BY id DESC) AS octets
        FROM report_mails WHERE state <> 'waiting'
    ) newer WHERE octets > $1::bigint
);

-- fragment: report_row
-- The columns of a report without its bytes.
SELECT id, purpose, local, host, envelope_from, host(remote_ip) AS remote_ip, received_at, size_bytes, state, result,
       reason, account_id, message_id, tries::int AS tries, reporter_address, signed_by
FROM report_mails

-- name: list_reports
-- Return at most $4 report mails with ids below $1, newest first, of state $2 and purpose $3 (null: all).
:report_row
WHERE id < $1 AND ($2::text IS NULL OR state = $2) AND ($3::text IS NULL OR purpose = $3)
ORDER BY id DESC LIMIT $4;

-- name: read_report_row
-- Return report mail $1 without its bytes.
:report_row WHERE id = $1;

-- name: read_report
-- Return report mail $1 with its bytes.
SELECT id, purpose, local, host, received_at, tries::int AS tries, raw, reporter_address, signed_by
FROM report_mails WHERE id = $1;

-- name: reports_by_state
-- Count report mails by purpose, state and result, with the arrival of the oldest.
SELECT purpose, state, coalesce(result, '') AS result, count(*) AS mails, min(received_at) AS oldest
FROM report_mails GROUP BY purpose, state, result ORDER BY purpose, state, result;
