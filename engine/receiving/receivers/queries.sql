-- name: add_cohorts
-- Add to the cohorts of buckets $1, providers $2 and sites $3: entered $4, ended $5, outcomes of first attempts $6 to $8,
-- deliveries by class $9 (array literals) and digests of accounts $10 (array literals).
INSERT INTO receiver_cohorts AS c (bucket, provider, site, entered, ended, first_delivered, first_deferred, first_refused,
                                   times, accounts)
SELECT n.bucket, n.provider, n.site, n.entered, n.ended, n.delivered, n.deferred, n.refused,
       n.times::integer[], n.accounts::text[]
FROM unnest($1::timestamptz[], $2::text[], $3::text[], $4::integer[], $5::integer[], $6::integer[], $7::integer[],
            $8::integer[], $9::text[], $10::text[])
    AS n (bucket, provider, site, entered, ended, delivered, deferred, refused, times, accounts)
ON CONFLICT (bucket, provider, site) DO UPDATE
SET entered = c.entered + EXCLUDED.entered, ended = c.ended + EXCLUDED.ended,
    first_delivered = c.first_delivered + EXCLUDED.first_delivered,
    first_deferred = c.first_deferred + EXCLUDED.first_deferred,
    first_refused = c.first_refused + EXCLUDED.first_refused,
    times = ARRAY(SELECT coalesce(t.known, 0) + coalesce(t.more, 0)
                  FROM unnest(c.times, EXCLUDED.times) WITH ORDINALITY AS t (known, more, place) ORDER BY t.place),
    accounts = (ARRAY(SELECT DISTINCT a FROM unnest(c.accounts || EXCLUDED.accounts) AS a ORDER BY a))[1:3];

-- name: recent_cohorts
-- Return the cohorts since $1 that tell of the last hour: those since $2, and older ones whose mail waits or arrived after
-- more than $3 classes of time.
SELECT bucket, provider, site, entered, ended, first_delivered, first_deferred, first_refused, times, accounts
FROM receiver_cohorts
WHERE bucket >= $1 AND (bucket >= $2 OR cardinality(times) > $3
    OR entered > ended + (SELECT coalesce(sum(t), 0) FROM unnest(times) AS t));

-- name: cohorts_at_hours
-- Return the cohorts of the hours that begin at $1.
SELECT c.bucket, c.provider, c.site, c.entered, c.ended, c.first_delivered, c.first_deferred, c.first_refused, c.times,
       c.accounts
FROM unnest($1::timestamptz[]) AS h (begins)
JOIN receiver_cohorts c ON c.bucket >= h.begins AND c.bucket < h.begins + interval '1 hour';

-- name: list_receivers
-- Return the judgements of all receivers.
SELECT provider, site, state, since, basis, sample, first_share, survival, accounts, updated_at FROM receivers;

-- name: write_receivers
-- Write judgements: providers $1, sites $2, states $3, since $4, basis $5, samples $6, shares $7, survival $8 (array
-- literals), digests of accounts $9 (array literals), made at $10. An older one does not replace a newer one.
INSERT INTO receivers AS r (provider, site, state, since, basis, sample, first_share, survival, accounts, updated_at)
SELECT n.provider, n.site, n.state, n.since, n.basis, n.sample, n.first_share, n.survival::real[], n.accounts::text[],
       n.updated_at
FROM unnest($1::text[], $2::text[], $3::text[], $4::timestamptz[], $5::text[], $6::integer[], $7::real[], $8::text[],
            $9::text[], $10::timestamptz[])
    AS n (provider, site, state, since, basis, sample, first_share, survival, accounts, updated_at)
ON CONFLICT (provider, site) DO UPDATE
SET state = EXCLUDED.state, since = EXCLUDED.since, basis = EXCLUDED.basis, sample = EXCLUDED.sample,
    first_share = EXCLUDED.first_share, survival = EXCLUDED.survival, accounts = EXCLUDED.accounts,
    updated_at = EXCLUDED.updated_at
WHERE r.updated_at < EXCLUDED.updated_at;

-- name: forget_cohorts
-- Delete the cohorts before $1.
DELETE FROM receiver_cohorts WHERE bucket < $1;

-- name: forget_receivers
-- Delete the judgements of receivers that were last judged before $1.
DELETE FROM receivers WHERE updated_at < $1;
