-- name: stored_and_passed
-- How many messages are stored, with how many different bytes, and how many passed SPF, DKIM and DMARC.
SELECT count(*) AS stored,
       count(DISTINCT raw_id) AS different,
       count(*) FILTER (WHERE authentication->'spf'->>'result' = 'pass'
                          AND authentication->'dkim'->>'result' = 'pass'
                          AND authentication->'dmarc'->>'result' = 'pass') AS passed
FROM inbound_messages;
