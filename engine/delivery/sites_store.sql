-- name: read_rules
-- The operator's rules.
SELECT name, rule::text, why, changed_at FROM site_rules ORDER BY name;

-- name: read_rule
-- The operator's rule for name $1, locked.
SELECT name, rule::text, why, changed_at FROM site_rules WHERE name = $1 FOR UPDATE;

-- name: write_rule
-- The rule for name $1 is $2, for reason $3.
INSERT INTO site_rules (name, rule, why) VALUES ($1, $2::jsonb, $3)
ON CONFLICT (name) DO UPDATE SET rule = excluded.rule, why = excluded.why, changed_at = now();

-- name: delete_rule
-- Forget the operator's rule for name $1.
DELETE FROM site_rules WHERE name = $1 RETURNING name;

-- name: write_states
-- Process $1 last saw of sites $2, with hosts $3 (comma-separated), the states $4.
INSERT INTO site_states (site, process, hosts, state)
SELECT n.site, $1, string_to_array(n.hosts, ','), n.state::jsonb FROM unnest($2::text[], $3::text[], $4::text[]) AS n (site, hosts, state)
ON CONFLICT (site, process) DO UPDATE SET hosts = excluded.hosts, state = excluded.state, updated_at = now();

-- name: read_states
-- What processes saw of sites or hosts $1 since $2, the latest first.
SELECT site, process, hosts, state::text, updated_at FROM site_states
WHERE updated_at > $2 AND (site = ANY($1::text[]) OR hosts && $1::text[]) ORDER BY updated_at DESC LIMIT 100;

-- name: list_states
-- What processes saw of any site since $1, the latest first, at most $2.
SELECT site, process, hosts, state::text, updated_at FROM site_states
WHERE updated_at > $1 ORDER BY updated_at DESC LIMIT $2;

-- name: forget_states
-- What is older than $1.
DELETE FROM site_states WHERE updated_at < $1;
