-- fragment: effective_status
-- The status by the database's clock: a worker writes `expired` a moment after the deadline.
CASE WHEN v.status = 'pending' AND v.expires_at <= clock_timestamp() THEN 'expired' ELSE v.status END

-- name: read_verification
-- Read verification $2 of account $1.
SELECT v.id, :effective_status AS status, v.attempts_left, v.code_length, v.codes_sent, v.message_id, v.created_at,
       v.expires_at,
       CASE WHEN v.status = 'pending' AND v.expires_at <= clock_timestamp() THEN v.expires_at ELSE v.finished_at END AS finished_at
FROM verifications v
WHERE v.account_id = $1 AND v.id = $2
  AND coalesce(v.finished_at, v.expires_at) > clock_timestamp() - interval '48 hours';

-- name: read_for_start
-- Read the time, the branding of account $1, and the verification that its idempotency key $2 (null: none) started.
SELECT clock_timestamp() AS now, (SELECT id FROM verifications WHERE account_id = $1 AND idempotency_key = $2) AS replay,
       s.brand_name, s.code_length, s.logo_token, s.logo_width, s.logo_height
FROM (SELECT 1) AS one LEFT JOIN verification_settings s ON s.account_id = $1;

-- name: read_for_resend
-- Read what another code of verification $2 of account $1 needs.
SELECT v.destination, :effective_status AS status, v.attempts_left, v.code_length, v.codes_sent, v.sender, v.stream,
       v.tags::text, v.metadata::text, v.locale, v.has_link, v.expires_at
FROM verifications v
WHERE v.account_id = $1 AND v.id = $2
  AND coalesce(v.finished_at, v.expires_at) > clock_timestamp() - interval '48 hours';

-- name: redigest_destination
-- Give the limits and verifications of the destination with digest $2 of account $1 the digest $3, under the present
-- pepper, so that a change of the pepper ends no lock.
WITH moved AS (
    UPDATE verifications SET destination = $3 WHERE account_id = $1 AND destination = $2 RETURNING 1
)
UPDATE verification_destinations SET destination = $3
WHERE account_id = $1 AND destination = $2 AND (SELECT count(*) FROM moved) >= 0
  AND NOT EXISTS (SELECT FROM verification_destinations WHERE account_id = $1 AND destination = $3);

-- name: start_facts
-- Read what a code to destination $2 of account $1 is decided by: the verification of idempotency key $3 (null: none),
-- and the codes that payer $4 has sent in month $5.
SELECT (SELECT id FROM verifications WHERE account_id = $1 AND idempotency_key = $3) AS replay, clock_timestamp() AS now,
       coalesce(d.sent_at, '{}') AS sent, d.locked_until,
       coalesce((SELECT used FROM plan_usage WHERE account_id = $4 AND resource = 'verifications' AND month = $5), 0) AS used
FROM (SELECT 1) AS one
LEFT JOIN verification_destinations d ON d.account_id = $1 AND d.destination = $2;

-- fragment: counted_code
-- Common table expressions that count a code to `:destination` of account `:account`, and one of payer `:payer` in month
-- `:month`, after the expression `written`: the verification is locked before its destination, as by checks.
paid AS (
    INSERT INTO plan_usage AS u (account_id, resource, month, used)
    SELECT :payer::uuid, 'verifications', :month::date, 1 FROM written
    ON CONFLICT (account_id, resource, month) DO UPDATE SET used = u.used + 1
)
INSERT INTO verification_destinations AS d (account_id, destination, sent_at, forget_at)
SELECT :account::uuid, :destination::bytea, ARRAY[clock_timestamp()], clock_timestamp() + interval '1 hour' FROM written
ON CONFLICT (account_id, destination) DO UPDATE
SET sent_at = ARRAY(SELECT one FROM unnest(d.sent_at) AS one WHERE one > clock_timestamp() - interval '1 hour' ORDER BY one)
              || clock_timestamp(),
    forget_at = greatest(d.forget_at, clock_timestamp() + interval '1 hour')

-- name: write_first_code
-- Cancel the pending verifications of the destination, insert the new one with one code sent, and count the code.
WITH superseded AS (
    UPDATE verifications v SET status = 'cancelled', finished_at = clock_timestamp(), due_at = clock_timestamp()
    WHERE v.account_id = :account AND v.destination = :destination AND v.status = 'pending'
      AND v.expires_at > clock_timestamp()
    RETURNING 1
), written AS (
    INSERT INTO verifications (codes_sent, due_at, :verification.names)
    SELECT 1, verification.expires_at, verification.* FROM :verification WHERE (SELECT count(*) FROM superseded) >= 0
    RETURNING 1
), :counted_code;

-- name: lock_for_resend
-- Lock verification $2 of account $1; return its status and how many codes it has sent.
SELECT :effective_status AS status, v.codes_sent FROM verifications v WHERE v.account_id = $1 AND v.id = $2 FOR UPDATE;

-- name: write_next_code
-- Give the locked verification `id` a new code and message, and count the code.
WITH written AS (
    UPDATE verifications SET code = :code, message_id = :message, codes_sent = codes_sent + 1
    WHERE account_id = :account AND id = :id RETURNING 1
), :counted_code;

-- name: claim_attempt
-- Take one attempt of verification $2 of account $1; no row unless it is pending, in time and has attempts left. The row
-- stays locked until the caller's transaction ends.
UPDATE verifications SET attempts_left = attempts_left - 1
WHERE account_id = $1 AND id = $2 AND status = 'pending' AND attempts_left > 0 AND expires_at > clock_timestamp()
RETURNING code, attempts_left, destination;

-- name: finish
-- Finish the pending verification $2 of account $1 with status $3.
UPDATE verifications SET status = $3, finished_at = clock_timestamp(), due_at = clock_timestamp()
WHERE account_id = $1 AND id = $2 AND status = 'pending' AND expires_at > clock_timestamp()
RETURNING destination;

-- name: note_approved
-- Forget the exhausted verifications of destination $2 of account $1.
UPDATE verification_destinations SET exhausted_at = '{}' WHERE account_id = $1 AND destination = $2;

-- name: note_exhausted
-- Note an exhausted verification of destination $2 of account $1; with $3 of them within 24 hours, lock the destination
-- for an hour.
INSERT INTO verification_destinations AS d (account_id, destination, exhausted_at, forget_at)
VALUES ($1, $2, ARRAY[clock_timestamp()], clock_timestamp() + interval '24 hours')
ON CONFLICT (account_id, destination) DO UPDATE
SET (exhausted_at, locked_until, forget_at) = (
    SELECT CASE WHEN cardinality(recent) >= $3 THEN '{}' ELSE recent END,
           CASE WHEN cardinality(recent) >= $3 THEN clock_timestamp() + interval '1 hour' ELSE d.locked_until END,
           clock_timestamp() + interval '24 hours'
    FROM (SELECT ARRAY(SELECT one FROM unnest(d.exhausted_at) AS one WHERE one > clock_timestamp() - interval '24 hours')
                 || clock_timestamp() AS recent) AS noted);

-- name: read_linked
-- Read what a confirmation link of verification $1 is checked against.
SELECT v.account_id, :effective_status AS status, v.codes_sent, v.has_link, s.brand_name, v.locale
FROM verifications v LEFT JOIN verification_settings s ON s.account_id = v.account_id
WHERE v.id = $1 AND coalesce(v.finished_at, v.expires_at) > clock_timestamp() - interval '48 hours';

-- name: approve_by_link
-- Approve verification $1 if it is pending and has sent $2 codes.
UPDATE verifications SET status = 'approved', finished_at = clock_timestamp(), due_at = clock_timestamp()
WHERE id = $1 AND status = 'pending' AND expires_at > clock_timestamp() AND codes_sent = $2 AND has_link
RETURNING account_id, destination;

-- name: due_verifications
-- Return at most $1 verifications that have ended and whose event is not written yet.
SELECT id, account_id, CASE WHEN status = 'pending' THEN 'expired' ELSE status END AS status, message_id
FROM verifications
WHERE due_at <= statement_timestamp() AND NOT announced AND account_id NOT IN (SELECT v.account_id FROM account_moves v)
ORDER BY due_at LIMIT $1;

-- name: mark_announced
-- Mark the ended verifications $1 as announced and return them; expired ones get their final status.
UPDATE verifications v
SET announced = true, status = CASE WHEN v.status = 'pending' THEN 'expired' ELSE v.status END,
    finished_at = coalesce(v.finished_at, v.expires_at),
    due_at = coalesce(v.finished_at, v.expires_at) + interval '48 hours'
WHERE v.id = ANY ($1::uuid[]) AND NOT v.announced AND (v.status <> 'pending' OR v.expires_at <= clock_timestamp())
RETURNING v.id, v.account_id, v.status, v.message_id;

-- name: purge_verifications
-- Delete at most $1 verifications that finished more than 48 hours ago.
DELETE FROM verifications WHERE id IN (
    SELECT id FROM verifications WHERE due_at <= statement_timestamp() AND announced ORDER BY due_at LIMIT $1);

-- name: forget_destinations
-- Delete at most $1 destinations whose counts and lock have ended.
DELETE FROM verification_destinations WHERE (account_id, destination) IN (
    SELECT account_id, destination FROM verification_destinations WHERE forget_at <= statement_timestamp()
    ORDER BY forget_at LIMIT $1);

-- name: read_settings
-- Read the branding of account $1.
SELECT brand_name, code_length, logo_token, logo_type, logo_width, logo_height, octet_length(logo) AS logo_bytes
FROM verification_settings WHERE account_id = $1;

-- name: save_settings
-- Save the branding of account $1: brand name $2 and code length $3.
INSERT INTO verification_settings AS s (account_id, brand_name, code_length) VALUES ($1, $2, $3)
ON CONFLICT (account_id) DO UPDATE SET brand_name = $2, code_length = $3;

-- name: save_logo
-- Save the logo of account $1: bytes $2, token $3, type $4, width $5, height $6 (null each: no logo).
UPDATE verification_settings SET logo = $2, logo_token = $3, logo_type = $4, logo_width = $5, logo_height = $6
WHERE account_id = $1;

-- name: read_logo
-- Read the logo with token $1.
SELECT logo AS content, logo_type AS content_type FROM verification_settings WHERE logo_token = $1;
