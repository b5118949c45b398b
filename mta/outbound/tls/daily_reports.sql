-- name: counted_sessions
-- The sessions of day $1 with policy domain $2.
SELECT policy, result, mx, ip, reason, sessions FROM tls_days WHERE day = $1 AND domain = $2
ORDER BY policy, result, mx;

-- name: served_policy
-- The MTA-STS policy of domain $1 as it was last served.
SELECT policy FROM sts_policies WHERE domain = $1;
