-- name: link_states
-- Read the stored links $1 with what a person may read about each.
SELECT l.id, l.account_id, l.address, l.broadcast_id, l.list_id, a.name AS sender, s.reason,
       coalesce(s.unsubscribe_link = l.id, false) AS lifts_all, t.name AS topic,
       o.address IS NOT NULL AS out_of_topic, coalesce(o.link_id = l.id, false) AS lifts_topic
FROM unsubscribe_links l
JOIN accounts a ON a.id = l.account_id
LEFT JOIN suppressions s ON s.account_id = l.account_id AND s.address = l.address
LEFT JOIN contact_lists t ON t.id = l.list_id AND t.account_id = l.account_id
LEFT JOIN topic_opt_outs o ON o.account_id = l.account_id AND o.list_id = l.list_id AND o.address = l.address
WHERE l.id = ANY ($1::uuid[]);

-- name: opt_out_of_all
-- Suppress the addresses of the links $1 with the reason `unsubscribe`, unless they are suppressed.
WITH added AS (
    INSERT INTO suppressions (account_id, address, reason, created_at, unsubscribe_link)
    SELECT DISTINCT ON (account_id, address) account_id, address, 'unsubscribe', clock_timestamp(), id
    FROM unsubscribe_links WHERE id = ANY ($1::uuid[]) ORDER BY account_id, address, id
    ON CONFLICT (account_id, address) DO NOTHING
    RETURNING unsubscribe_link
)
SELECT l.id AS link, true AS suppression, false AS topic, o.address IS NULL AS is_turn
FROM added JOIN unsubscribe_links l ON l.id = added.unsubscribe_link
LEFT JOIN topic_opt_outs o ON o.account_id = l.account_id AND o.list_id = l.list_id AND o.address = l.address AND o.link_id = l.id
ORDER BY l.id;

-- name: opt_out_of_topic
-- Record that the addresses of the links $1 opted out of the links' lists, unless they did before.
WITH added AS (
    INSERT INTO topic_opt_outs (account_id, list_id, address, link_id, created_at)
    SELECT DISTINCT ON (account_id, list_id, address) account_id, list_id, address, id, clock_timestamp()
    FROM unsubscribe_links WHERE id = ANY ($1::uuid[]) AND list_id IS NOT NULL ORDER BY account_id, list_id, address, id
    ON CONFLICT (account_id, list_id, address) DO NOTHING
    RETURNING link_id
)
SELECT l.id AS link, false AS suppression, true AS topic, s.address IS NULL AS is_turn
FROM added JOIN unsubscribe_links l ON l.id = added.link_id
LEFT JOIN suppressions s ON s.account_id = l.account_id AND s.address = l.address AND s.unsubscribe_link = l.id
ORDER BY l.id;

-- name: undo
-- Take back what the links $1 did: their suppressions, unless a stronger reason replaced them, and their opt-outs of
-- topics.
WITH lifted AS (
    DELETE FROM suppressions s USING unsubscribe_links l
    WHERE l.id = ANY ($1::uuid[]) AND s.account_id = l.account_id AND s.address = l.address
      AND s.reason = 'unsubscribe' AND s.unsubscribe_link = l.id
    RETURNING l.id
), readmitted AS (
    DELETE FROM topic_opt_outs o USING unsubscribe_links l
    WHERE l.id = ANY ($1::uuid[]) AND o.account_id = l.account_id AND o.list_id = l.list_id AND o.address = l.address
      AND o.link_id = l.id
    RETURNING l.id
)
SELECT l.id AS link, l.id IN (SELECT id FROM lifted) AS suppression, l.id IN (SELECT id FROM readmitted) AS topic,
       true AS is_turn
FROM unsubscribe_links l WHERE l.id IN (SELECT id FROM lifted UNION SELECT id FROM readmitted) ORDER BY l.id;
