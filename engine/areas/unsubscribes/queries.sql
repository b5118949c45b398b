-- name: insert_links
-- Store links; one that is stored already stays as it is.
INSERT INTO unsubscribe_links (:link.names, created_at)
SELECT link.*, now() FROM :link ORDER BY link.id
ON CONFLICT (id) DO NOTHING;

-- name: opted_out_of_topic
-- Return those of the canonical addresses $3 that opted out of list $2 of account $1.
SELECT address FROM topic_opt_outs WHERE account_id = $1 AND list_id = $2 AND address = ANY ($3::text[]);

-- name: page_topic_opt_outs
-- Return at most $4 opt-outs of topics of account $1 after (list, address) ($2, $3).
SELECT list_id, address, created_at FROM topic_opt_outs
WHERE account_id = $1 AND (list_id, address) > ($2::uuid, $3::text)
ORDER BY list_id, address LIMIT $4;

-- name: add_topic_opt_outs
-- Record that the canonical addresses $2 of account $1 opted out of the lists $3 at $4, without a link.
INSERT INTO topic_opt_outs (account_id, list_id, address, created_at)
SELECT $1, n.list_id, n.address, $4 FROM unnest($2::text[], $3::uuid[]) AS n (address, list_id)
ON CONFLICT (account_id, list_id, address) DO NOTHING RETURNING address, list_id;
