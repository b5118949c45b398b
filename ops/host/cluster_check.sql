-- name: insert_installation
-- Record the first host's number of shards $1 and pepper fingerprint $2; later calls change nothing.
INSERT INTO installation (shards, pepper_print) VALUES ($1, $2) ON CONFLICT DO NOTHING;

-- name: read_installation
-- The installation's values, and whether data depends on them: keys and sessions on the pepper; queued mail and
-- running mta processes on the number of shards.
SELECT shards, pepper_print, previous_print,
       EXISTS (SELECT FROM api_keys) OR EXISTS (SELECT FROM sessions) AS peppered,
       EXISTS (SELECT FROM queue) OR EXISTS (SELECT FROM shard_members WHERE expires_at > pg_catalog.clock_timestamp()) AS sharded
FROM installation;

-- name: adopt_installation
-- Set the number of shards to $1 and the pepper fingerprint to $2. If another was the present one, keep it as the previous
-- one, and write it to the digests that it was implied for.
WITH keys AS (
    UPDATE api_keys k SET pepper_print = i.pepper_print FROM installation i
    WHERE k.pepper_print IS NULL AND i.pepper_print <> $2
), codes AS (
    UPDATE recovery_codes c SET pepper_print = i.pepper_print FROM installation i
    WHERE c.pepper_print IS NULL AND i.pepper_print <> $2
)
UPDATE installation SET
    shards = $1, pepper_print = $2,
    previous_print = CASE WHEN pepper_print = $2 THEN previous_print ELSE pepper_print END,
    pepper_changed_at = CASE WHEN pepper_print = $2 THEN pepper_changed_at ELSE clock_timestamp() END;

-- name: namesakes
-- Names and lease ends of the members with a valid lease whose name is in $1.
SELECT name, max(expires_at) AS expires_at FROM shard_members
WHERE name = ANY($1::text[]) AND expires_at > pg_catalog.clock_timestamp() GROUP BY name;
