-- name: read_rules
-- Return the operator's rules.
SELECT name, rule::text, why, changed_at FROM site_rules ORDER BY name;

-- name: read_rule
-- Return and lock the operator's rule for name $1.
SELECT name, rule::text, why, changed_at FROM site_rules WHERE name = $1 FOR UPDATE;

-- name: write_rule
-- Set the rule for name $1 to $2, with reason $3.
INSERT INTO site_rules (name, rule, why, changed_at) VALUES ($1, $2::jsonb, $3, now())
ON CONFLICT (name) DO UPDATE SET rule = excluded.rule, why = excluded.why, changed_at = now();

-- name: delete_rule
-- Delete the operator's rule for name $1.
DELETE FROM site_rules WHERE name = $1 RETURNING name;

-- name: write_states
-- Store the states $4 that process $1 reports of sites $2 with hosts $3 (comma-separated).
INSERT INTO site_states (site, process, hosts, state, updated_at)
SELECT n.site, $1, string_to_array(n.hosts, ','), n.state::jsonb, now()
FROM unnest($2::text[], $3::text[], $4::text[]) AS n (site, hosts, state)
ON CONFLICT (site, process) DO UPDATE SET hosts = excluded.hosts, state = excluded.state, updated_at = now();

-- name: read_states
-- Return the states of sites or hosts $1 reported since $2, the latest first.
SELECT site, process, hosts, state::text, updated_at FROM site_states
WHERE updated_at > $2 AND (site = ANY($1::text[]) OR hosts && $1::text[]) ORDER BY updated_at DESC LIMIT 100;

-- name: list_states
-- Return the states of all sites reported since $1, the latest first, at most $2.
SELECT site, process, hosts, state::text, updated_at FROM site_states
WHERE updated_at > $1 ORDER BY updated_at DESC LIMIT $2;

-- name: forget_states
-- Delete states reported before $1.
DELETE FROM site_states WHERE updated_at < $1;
