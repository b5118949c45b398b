-- fragment: route_columns
-- The columns of one route `r` with its address `a` or domain `d`.
r.id, a.address, d.name AS domain, r.action, r.webhook_id, r.include, r.forward_to, :forward_allowed AS forward_allowed,
r.enabled, r.retain_content, r.created_at

-- fragment: routes_with_targets
-- Routes with their target.
inbound_routes r
LEFT JOIN inbound_addresses a ON a.id = r.address_id
LEFT JOIN domains d ON d.id = r.domain_id

-- fragment: rule_fields
-- The fields of a RouteRule of route `r`.
ROW(r.action, r.webhook_id, r.include, r.forward_to, :forward_allowed, r.enabled, r.retain_content)

-- fragment: endpoint_fields
-- The fields of a RouteEndpoint of endpoint `w`.
ROW(w.id, w.event_types = '{}' OR 'inbound.received' = ANY (w.event_types), w.domains)

-- fragment: forward_allowed
-- Whether route `r` may forward mail to its address now.
r.forward_to IS NOT NULL AND may_forward_to(r.account_id, r.forward_to)

-- name: list_routes
-- List routes of account $1 for domains $3 (null: all) with ids below $2 (null: from the newest), newest first, at most
-- $4.
SELECT :route_columns FROM :routes_with_targets
WHERE r.account_id = $1 AND ($2::uuid IS NULL OR r.id < $2)
  AND ($3::text[] IS NULL OR coalesce(d.name, split_part(a.canonical, '@', 2)) = ANY ($3))
ORDER BY r.id DESC LIMIT $4;

-- name: read_route
-- Read route $2 of account $1, if it is for one of the domains $3 (null: all).
SELECT :route_columns FROM :routes_with_targets
WHERE r.account_id = $1 AND r.id = $2
  AND ($3::text[] IS NULL OR coalesce(d.name, split_part(a.canonical, '@', 2)) = ANY ($3));

-- name: active_endpoints
-- Read the active endpoints of account $1.
SELECT w.id, w.event_types = '{}' OR 'inbound.received' = ANY (w.event_types) AS subscribed, w.domains
FROM webhooks w WHERE w.account_id = $1 AND w.status = 'active';

-- name: endpoint_exists
-- Return whether account $1 has endpoint $2, active or disabled.
SELECT EXISTS (SELECT 1 FROM webhooks WHERE account_id = $1 AND id = $2 AND status <> 'deleted') AS found;

-- name: target_address
-- Read the address of account $1 with canonical form $2 as the target of a route.
SELECT id AS address_id, NULL::uuid AS domain_id, 'verified' AS status FROM inbound_addresses
WHERE account_id = $1 AND canonical = $2;

-- name: target_domain
-- Read domain $2 of account $1 as the target of a route.
SELECT NULL::uuid AS address_id, id AS domain_id, status FROM domains
WHERE account_id = $1 AND name = $2 AND deleted_at IS NULL;

-- name: route_of_target
-- Read the route of account $1 for address $2 or domain $3.
SELECT id FROM inbound_routes WHERE account_id = $1 AND (address_id = $2 OR domain_id = $3);

-- name: insert_route
-- Insert route $1 of account $2 for address $3 or domain $4: action $5, endpoint $6, included parts $7, forward to $8,
-- and whether the content is retained $9.
INSERT INTO inbound_routes (id, account_id, address_id, domain_id, action, webhook_id, include, forward_to, retain_content,
                            created_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, clock_timestamp());

-- name: change_route
-- Change route $2 of account $1: action $3, endpoint $4, included parts $5, forward to $6, whether it is
-- enabled $7, and whether the content is retained $8.
UPDATE inbound_routes SET action = $3, webhook_id = $4, include = $5, forward_to = $6, enabled = $7, retain_content = $8
WHERE account_id = $1 AND id = $2;

-- name: delete_route
-- Delete route $2 of account $1.
DELETE FROM inbound_routes WHERE account_id = $1 AND id = $2;

-- name: next_forward
-- Return the forwarding route for mail to the claimed address of account $1 that comes first among the forms $2.
SELECT r.id, r.forward_to
FROM (SELECT a.id, a.domain_id FROM unnest($2::text[]) WITH ORDINALITY AS f (form, place)
      JOIN inbound_addresses a ON a.account_id = $1 AND a.canonical = f.form ORDER BY f.place LIMIT 1) a
JOIN inbound_routes r ON r.id = coalesce((SELECT id FROM inbound_routes WHERE address_id = a.id),
                                         (SELECT id FROM inbound_routes WHERE domain_id = a.domain_id))
WHERE r.enabled AND r.action = 'forward' AND r.forward_to IS NOT NULL;

-- name: may_forward
-- Return whether account $1 may forward received mail to address $2 now.
SELECT may_forward_to($1::uuid, $2::text) AS allowed;

-- name: rules_of_addresses
-- Read the addresses $1 with the rules that apply to them and the active endpoints of their accounts.
SELECT t.id AS address_id, t.account_id, split_part(t.canonical, '@', 2) AS domain, t.enabled, o.status AS account_status,
       ARRAY(SELECT :rule_fields FROM inbound_routes r WHERE r.address_id = t.id) AS address_rules,
       ARRAY(SELECT :rule_fields FROM inbound_routes r WHERE r.domain_id = t.domain_id) AS domain_rules,
       ARRAY(SELECT :endpoint_fields FROM webhooks w WHERE w.account_id = t.account_id AND w.status = 'active') AS endpoints
FROM inbound_addresses t JOIN accounts o ON o.id = t.account_id
WHERE t.id = ANY ($1::uuid[]);
