-- fragment: links_stored
-- Stores the links `link`; one that is stored already stays as it is.
INSERT INTO unsubscribe_links (:link.names, created_at)
SELECT link.*, now() FROM :link ORDER BY link.id
ON CONFLICT (id) DO NOTHING

-- name: insert_links
-- Store links; one that is stored already stays as it is.
:links_stored;

-- name: list_topic_opt_outs
-- List the opt-outs of list $2 of account $1 before position ($3, $4) in the order of time and address, newest first, at
-- most $5.
SELECT address, link_id, created_at FROM topic_opt_outs
WHERE account_id = $1 AND list_id = $2 AND (created_at, address) < ($3::timestamptz, $4::text)
ORDER BY created_at DESC, address DESC LIMIT $5;

-- name: add_topic_opt_outs
-- Record that the canonical addresses $3 of account $1 opted out of list $2 at $4, without a link. Returns the new ones.
INSERT INTO topic_opt_outs (account_id, list_id, address, created_at)
SELECT $1, $2, n.address, $4 FROM unnest($3::text[]) AS n (address)
ON CONFLICT (account_id, list_id, address) DO NOTHING RETURNING address;

-- name: delete_topic_opt_out
-- Delete the opt-out of the canonical address $3 of account $1 from list $2; returns it if there was one.
DELETE FROM topic_opt_outs WHERE account_id = $1 AND list_id = $2 AND address = $3 RETURNING address;
