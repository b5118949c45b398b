-- name: traced_domains
-- What the operator watches at present.
SELECT domain, max(expires_at) AS expires_at FROM traces WHERE expires_at > now() GROUP BY domain;

-- name: tell_traces
-- Conversations $1 (JSON texts, each under 8,000 octets) for whoever watches.
SELECT pg_notify('wb_trace', t) FROM unnest($1::text[]) AS t;
