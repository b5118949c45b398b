-- fragment: copies_claimed
-- Common table expressions. `claimed` locks, of the recipients `mark`, those that still wait in a broadcast that is sending;
-- a pause waits until the transaction ends. The recipients are looked up one by one: statistics of a time when none waited
-- make the planner go through all that wait, for each batch.
open AS MATERIALIZED (
    SELECT id FROM broadcasts WHERE id = ANY (:mark.broadcast_id) AND status = 'sending' ORDER BY id FOR SHARE
), claimed AS (
    SELECT r.broadcast_id, r.contact_id
    FROM :mark
    JOIN open ON open.id = mark.broadcast_id
    CROSS JOIN LATERAL (
        SELECT broadcast_id, contact_id FROM broadcast_recipients
        WHERE broadcast_id = mark.broadcast_id AND contact_id = mark.contact_id AND state = 'waiting'
        FOR NO KEY UPDATE SKIP LOCKED
    ) r
)

-- name: claim_copies
-- Lock, of the recipients `mark`, those that still wait in a broadcast that is sending, and return them.
WITH :copies_claimed
SELECT broadcast_id, contact_id FROM claimed;

-- fragment: copies_marked
-- Marks the recipients `mark`, which the caller has locked, with their states and messages, and counts them. Looked up as
-- by `copies_claimed`.
WITH waiting AS MATERIALIZED (
    SELECT mark.*
    FROM :mark
    CROSS JOIN LATERAL (
        SELECT 1 FROM broadcast_recipients
        WHERE broadcast_id = mark.broadcast_id AND contact_id = mark.contact_id AND state = 'waiting'
        FOR NO KEY UPDATE
    ) r
), marked AS (
    UPDATE broadcast_recipients r SET state = n.state, message_id = n.message_id
    FROM waiting n WHERE r.broadcast_id = n.broadcast_id AND r.contact_id = n.contact_id
    RETURNING r.broadcast_id, r.state
), sums AS (
    SELECT broadcast_id, count(*) FILTER (WHERE state = 'accepted') AS accepted,
           count(*) FILTER (WHERE state = 'suppressed') AS suppressed,
           count(*) FILTER (WHERE state = 'removed') AS removed,
           count(*) FILTER (WHERE state = 'template_error') AS template_error,
           count(*) FILTER (WHERE state = 'unconfirmed') AS unconfirmed,
           count(*) FILTER (WHERE state = 'unsubscribed') AS unsubscribed
    FROM marked GROUP BY broadcast_id
)
UPDATE broadcast_progress p
SET accepted = p.accepted + sums.accepted, suppressed = p.suppressed + sums.suppressed,
    removed = p.removed + sums.removed, template_error = p.template_error + sums.template_error,
    unconfirmed = p.unconfirmed + sums.unconfirmed, unsubscribed = p.unsubscribed + sums.unsubscribed
FROM sums WHERE p.broadcast_id = sums.broadcast_id

-- name: mark_copies
-- Mark the recipients `mark`, which the caller has locked, with their states and messages, and count them.
:copies_marked;
