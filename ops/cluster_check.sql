-- name: found_installation
-- The first host writes what it runs with: shards $1, print of the pepper $2.
INSERT INTO installation (shards, pepper_print) VALUES ($1, $2) ON CONFLICT DO NOTHING;

-- name: read_installation
-- What the hosts agreed on, and whether anything depends on it: keys and sessions on the pepper, queued mail and
-- living mta processes on the number of shards.
SELECT shards, pepper_print,
       EXISTS (SELECT FROM api_keys) OR EXISTS (SELECT FROM sessions) AS peppered,
       EXISTS (SELECT FROM queue) OR EXISTS (SELECT FROM shard_members WHERE expires_at > clock_timestamp()) AS sharded
FROM installation;

-- name: adopt_installation
-- From now on it is shards $1 and the pepper with the print $2.
UPDATE installation SET shards = $1, pepper_print = $2;

-- name: namesakes
-- Names and ends of leases of the living members called one of $1.
SELECT name, max(expires_at) AS expires_at FROM shard_members
WHERE name = ANY($1::text[]) AND expires_at > clock_timestamp() GROUP BY name;
