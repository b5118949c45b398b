-- name: traced_domains
-- The domains that operators watch now.
SELECT domain, max(expires_at) AS expires_at FROM traces WHERE expires_at > pg_catalog.now() GROUP BY domain;

-- name: tell_traces
-- Notify the operators who watch of conversations $1 (JSON texts, each under 8,000 octets).
SELECT pg_notify('wb_trace' || :channel_schema, t) FROM unnest($1::text[]) AS t;
