-- name: scan_seals
-- Read a batch of sealed values with keys after `after`, in order; all values of its last key.
SELECT :key AS key, :seal AS sealed FROM :seals
WHERE :key > CAST(:after AS :kind) AND :seal IS NOT NULL
ORDER BY :key FETCH FIRST (:most) ROWS WITH TIES;

-- name: replace_seals
-- Replace the sealed values `stale` of the keys by `fresh`, except those that have changed since they were read.
UPDATE :seals t SET :seal = n.fresh
FROM unnest(CAST(:ids AS :kind[]), CAST(:stale AS bytea[]), CAST(:fresh AS bytea[])) AS n (key, stale, fresh)
WHERE t.:key = n.key AND t.:seal = n.stale;

-- name: read_peppers
-- Read the fingerprint of the installation's present pepper, and when it became that.
SELECT pepper_print, pepper_changed_at FROM installation;

-- name: count_digests
-- Count usable API keys, recovery codes and sessions by their pepper: that with fingerprint $1, that with fingerprint $2
-- (null: none), and others. Sessions have no mark: each use renews their digest.
WITH i AS (SELECT pepper_print, pepper_changed_at FROM installation),
digests AS (
    SELECT 'API keys' AS what, coalesce(k.pepper_print, (SELECT pepper_print FROM i), $1) AS print FROM api_keys k
    WHERE k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > now())
    UNION ALL
    SELECT 'recovery codes', coalesce(c.pepper_print, (SELECT pepper_print FROM i), $1) FROM recovery_codes c
    UNION ALL
    SELECT 'sessions', CASE WHEN s.used_at < (SELECT pepper_changed_at FROM i) THEN $2 ELSE $1 END FROM sessions s
    WHERE s.expires_at > now() AND s.used_at > now() - interval '7 days'
)
SELECT what, count(*) FILTER (WHERE print = $1) AS present, count(*) FILTER (WHERE print = $2) AS previous,
       count(*) FILTER (WHERE print <> $1 AND print IS DISTINCT FROM $2) AS unreadable
FROM digests GROUP BY what ORDER BY what;
