-- fragment: summary_columns
-- The columns of a broadcast without its content.
b.id, b.account_id, b.name, b.list_id, b.segment_id, b.stream, b.sender, b.from_domain, b.reply_to, b.template,
b.template_version, b.subject, b.per_minute, b.status, b.paused_because, b.stopped_because, b.waits_for, b.review_note,
b.scheduled_at, b.started_at, b.finished_at, b.resumes_at, b.created_at, b.updated_at

-- fragment: count_columns
-- The counts of a broadcast, from its progress `p` and its outcomes `o`.
coalesce(p.recipients, 0) AS recipients, coalesce(p.accepted, 0) AS accepted, coalesce(p.suppressed, 0) AS suppressed,
coalesce(p.removed, 0) AS removed, coalesce(p.template_error, 0) AS template_error,
coalesce(p.unconfirmed, 0) AS unconfirmed, coalesce(p.unsubscribed, 0) AS unsubscribed_topic,
coalesce(o.delivered, 0) AS delivered, coalesce(o.bounced, 0) AS bounced, coalesce(o.complained, 0) AS complained,
coalesce(o.failed, 0) AS failed, coalesce(o.rejected, 0) AS rejected, coalesce(o.unsubscribed, 0) AS unsubscribed

-- name: list_broadcasts
-- List broadcasts of account $1 from domains $4 on streams $5 (null: all) with ids below $2 (null: from the newest), newest
-- first, at most $3.
SELECT :summary_columns FROM broadcasts b
WHERE b.account_id = $1 AND ($2::uuid IS NULL OR b.id < $2)
  AND ($4::text[] IS NULL OR b.from_domain = ANY ($4)) AND ($5::text[] IS NULL OR b.stream = ANY ($5))
ORDER BY b.id DESC LIMIT $3;

-- name: read_broadcast
-- Read broadcast $2 of account $1.
SELECT :summary_columns, b.html, b.text, b.blocks, b.attachments, b.removed_files FROM broadcasts b
WHERE b.account_id = $1 AND b.id = $2;

-- name: lock_broadcast
-- Read broadcast $2 of account $1 and lock it for a change. Lock it before an account head.
SELECT :summary_columns, b.html, b.text, b.blocks, b.attachments, b.removed_files FROM broadcasts b
WHERE b.account_id = $1 AND b.id = $2
FOR NO KEY UPDATE;

-- name: find_broadcast
-- Read broadcast $1 of any account.
SELECT :summary_columns FROM broadcasts b WHERE b.id = $1;

-- name: read_counts
-- Read the counts of broadcast $1.
SELECT :count_columns
FROM (SELECT $1::uuid AS id) b LEFT JOIN broadcast_progress p ON p.broadcast_id = b.id
LEFT JOIN broadcast_outcomes o ON o.broadcast_id = b.id;

-- name: read_unfinished
-- Count the broadcasts of account $1 that have not ended, and the characters of their content.
SELECT count(*) AS broadcasts,
       coalesce(sum(coalesce(octet_length(html), 0) + coalesce(octet_length(text), 0)
                    + coalesce(octet_length(blocks::text), 0) + coalesce(octet_length(attachments), 0)), 0)::bigint AS content_bytes
FROM broadcasts
WHERE account_id = $1 AND status IN ('draft', 'in_review', 'scheduled', 'sending', 'paused');

-- name: insert_broadcast
-- Insert a draft.
INSERT INTO broadcasts (id, account_id, name, list_id, segment_id, stream, sender, from_domain, reply_to, template, subject,
                        html, text, blocks, attachments, per_minute, created_at, updated_at)
VALUES (:broadcast, :account, :name, :list_id, :segment_id, :stream, :sender, :from_domain, :reply_to, :template, :subject,
        :html, :text, :blocks, :attachments, :per_minute, :at, :at);

-- name: change_broadcast
-- Replace the fields of a draft.
UPDATE broadcasts
SET name = :name, list_id = :list_id, segment_id = :segment_id, stream = :stream, sender = :sender,
    from_domain = :from_domain, reply_to = :reply_to, template = :template, subject = :subject, html = :html, text = :text,
    blocks = :blocks, attachments = :attachments, per_minute = :per_minute, updated_at = now()
WHERE account_id = :account AND id = :broadcast;

-- name: send_broadcast
-- Give broadcast $1 the status $2, the pinned template version $3 and the time $4, and tell the workers.
WITH changed AS (
    UPDATE broadcasts
    SET status = $2, template_version = $3, scheduled_at = $4, review_note = NULL, updated_at = now()
    WHERE id = $1
    RETURNING id, account_id, status, scheduled_at
), gone AS (
    DELETE FROM broadcast_work WHERE broadcast_id = $1 AND $2 = 'in_review'
)
INSERT INTO broadcast_work (broadcast_id, account_id, due_at)
SELECT id, account_id, greatest(now(), scheduled_at) FROM changed WHERE status <> 'in_review'
ON CONFLICT (broadcast_id) DO UPDATE SET due_at = excluded.due_at, worker = NULL;

-- name: move_broadcast
-- Give broadcast $1 the status $2, paused because $3, stopped because $4, review note $5, resuming at $6; a worker looks at
-- it at $7 (null: none does). A final status ends it now.
WITH changed AS (
    UPDATE broadcasts
    SET status = $2, paused_because = $3, stopped_because = $4, review_note = coalesce($5, review_note), resumes_at = $6,
        waits_for = NULL, updated_at = now(),
        finished_at = CASE WHEN $2 IN ('sent', 'stopped', 'canceled') THEN now() END
    WHERE id = $1
    RETURNING id, account_id
), gone AS (
    DELETE FROM broadcast_work WHERE broadcast_id = $1 AND $7::timestamptz IS NULL
)
INSERT INTO broadcast_work (broadcast_id, account_id, due_at)
SELECT id, account_id, $7 FROM changed WHERE $7::timestamptz IS NOT NULL
ON CONFLICT (broadcast_id) DO UPDATE SET due_at = excluded.due_at, worker = NULL;

-- name: delete_broadcast
-- Delete broadcast $1 with its recipients and counts.
WITH work AS (DELETE FROM broadcast_work WHERE broadcast_id = $1),
     progress AS (DELETE FROM broadcast_progress WHERE broadcast_id = $1),
     outcomes AS (DELETE FROM broadcast_outcomes WHERE broadcast_id = $1),
     recipients AS (DELETE FROM broadcast_recipients WHERE broadcast_id = $1)
DELETE FROM broadcasts WHERE id = $1;

-- name: claim_work
-- Claim the broadcast that has been due for the longest time for worker $1, for the time $2.
UPDATE broadcast_work SET due_at = clock_timestamp() + $2, worker = $1
WHERE broadcast_id = (SELECT broadcast_id FROM broadcast_work WHERE due_at <= statement_timestamp()
                          AND account_id NOT IN (SELECT v.account_id FROM account_moves v)
                      ORDER BY due_at LIMIT 1 FOR UPDATE SKIP LOCKED)
RETURNING broadcast_id, account_id, clock_timestamp() AS at;

-- name: keep_work
-- Keep the claim of worker $2 on broadcast $1 for the time $3; returns no row if another worker has claimed it.
UPDATE broadcast_work SET due_at = clock_timestamp() + $3 WHERE broadcast_id = $1 AND worker = $2 RETURNING broadcast_id;

-- name: end_turn
-- End the claim of worker $2 on broadcast $1: it is due again after the time $3, and waits for $4 meanwhile (null: for
-- its turn).
WITH work AS (
    UPDATE broadcast_work SET due_at = clock_timestamp() + $3, worker = NULL WHERE broadcast_id = $1 AND worker = $2
)
UPDATE broadcasts SET waits_for = $4 WHERE id = $1 AND status = 'sending' AND waits_for IS DISTINCT FROM $4;

-- name: drop_work
-- Forget that a worker should look at broadcast $1, unless the claim of worker $2 on it has ended.
DELETE FROM broadcast_work WHERE broadcast_id = $1 AND worker = $2;

-- name: approved_before
-- Read whether a broadcast of account $1 was approved before.
SELECT approved_at IS NOT NULL AS approved FROM broadcast_reviews WHERE account_id = $1;

-- name: lock_review
-- Lock the review record of account $1, making it if needed; returns whether a broadcast was approved before.
INSERT INTO broadcast_reviews AS r (account_id) VALUES ($1)
ON CONFLICT (account_id) DO UPDATE SET approved_at = r.approved_at
RETURNING approved_at IS NOT NULL AS approved;

-- name: approve
-- Record that a broadcast of account $1 was approved.
INSERT INTO broadcast_reviews AS r (account_id, approved_at) VALUES ($1, now())
ON CONFLICT (account_id) DO UPDATE SET approved_at = coalesce(r.approved_at, now());

-- name: start_counts
-- Count the recipients of broadcast $1, which has just got them, and begin to count the outcomes of its account's mail
-- until $2 at least.
WITH progress AS (
    INSERT INTO broadcast_progress (broadcast_id, recipients)
    SELECT $1, count(*) FROM broadcast_recipients WHERE broadcast_id = $1
), outcomes AS (
    INSERT INTO broadcast_outcomes (broadcast_id) VALUES ($1)
), watch AS (
    INSERT INTO broadcast_watches AS w (account_id, counted_seq, counted_at, ends_at)
    SELECT h.account_id, h.seq, now(), $2 FROM broadcasts b JOIN account_heads h ON h.account_id = b.account_id
    WHERE b.id = $1
    ON CONFLICT (account_id) DO UPDATE SET ends_at = greatest(w.ends_at, excluded.ends_at)
)
UPDATE broadcasts SET started_at = now(), status = 'sending', updated_at = now() WHERE id = $1;

-- name: any_waiting
-- Return a row if a recipient of broadcast $1 is neither accepted nor skipped.
SELECT 1 AS found FROM broadcast_recipients WHERE broadcast_id = $1 AND state = 'waiting' LIMIT 1;

-- name: list_reviews
-- List at most $2 broadcasts that wait for review, the oldest first, after broadcast $1 (null: from the oldest).
SELECT :summary_columns FROM broadcasts b WHERE b.status = 'in_review' AND ($1::uuid IS NULL OR b.id > $1)
ORDER BY b.id LIMIT $2;

-- name: forget_recipients
-- Delete at most $2 recipients of broadcasts that ended before $1; returns how many. Their counts stay.
WITH old AS (
    SELECT r.broadcast_id, r.contact_id FROM broadcasts b JOIN broadcast_recipients r ON r.broadcast_id = b.id
    WHERE b.finished_at < $1 LIMIT $2
), gone AS (
    DELETE FROM broadcast_recipients r USING old
    WHERE r.broadcast_id = old.broadcast_id AND r.contact_id = old.contact_id
    RETURNING 1
)
SELECT count(*) AS recipients FROM gone;

-- name: remove_files
-- Remove the files of one broadcast that ended before $1, keeping what they were; returns its id.
UPDATE broadcasts
SET attachments = NULL,
    removed_files = (
        SELECT json_agg(json_build_object(
            'filename', file ->> 'filename', 'contentType', file ->> 'contentType',
            'sizeBytes', octet_length(file ->> 'content') * 3 / 4
                         - (octet_length(file ->> 'content') - octet_length(rtrim(file ->> 'content', '='))),
            'disposition', coalesce(file ->> 'disposition', 'attachment'), 'cid', file ->> 'cid'))::text
        FROM json_array_elements(attachments::json) AS file)
WHERE id = (SELECT id FROM broadcasts WHERE finished_at < $1 AND attachments IS NOT NULL
            ORDER BY finished_at LIMIT 1 FOR UPDATE SKIP LOCKED)
RETURNING id;
