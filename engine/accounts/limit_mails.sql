-- name: heads_at_limits
-- Return at most $7 heads after account $6, in the order of ids, that were counted on day $5 or later and may be due a
-- mail: the whole daily limit is used, or the share $4 of the month, and no mail has named this limit in this period. The
-- plans $1 include $2 messages a month; $3 are the steps of the daily limit. engine.ledger.quota decides exactly.
SELECT h.account_id, h.seq, h.hash, h.rung, h.day, h.sent_today, h.month, h.sent_this_month, a.plan, a.status, a.daily_cap,
       a.monthly_cap, h.scheduled, a.parent_id, a.xmin AS account_version, a.agreed_caps
FROM account_heads h
JOIN accounts a ON a.id = h.account_id AND a.status NOT IN ('closing', 'moving')
JOIN unnest($1::text[], $2::integer[]) AS plans (plan, monthly_emails) ON plans.plan = a.plan
CROSS JOIN LATERAL (
    SELECT coalesce(a.daily_cap, ($3::integer[])[h.rung + 1]) AS daily,
           CASE WHEN a.parent_id IS NULL THEN coalesce(a.monthly_cap, plans.monthly_emails) ELSE a.monthly_cap END AS monthly
) AS cap
WHERE h.day >= $5 AND h.account_id > $6 AND EXISTS (
    SELECT FROM (VALUES
        ('daily_limit_reached', h.day, cap.daily, h.sent_today >= cap.daily),
        ('monthly_limit_near', h.month, cap.monthly,
         h.sent_this_month >= $4::float8 * cap.monthly AND h.sent_this_month < cap.monthly),
        ('monthly_limit_reached', h.month, cap.monthly, h.sent_this_month >= cap.monthly)
    ) AS due (kind, period, cap, reached)
    WHERE due.reached AND NOT EXISTS (
        SELECT FROM limit_mails m
        WHERE m.account_id = h.account_id AND m.kind = due.kind AND m.period = due.period AND m.cap >= due.cap
    )
)
ORDER BY h.account_id LIMIT $7;

-- name: note_limit_mail
-- Record the mail of kind $2 about limit $4 of account $1 in the period that begins on $3. Return no row if a mail of this
-- or a later period named this limit or a higher one.
INSERT INTO limit_mails AS m (account_id, kind, period, cap) VALUES ($1, $2, $3, $4)
ON CONFLICT (account_id, kind) DO UPDATE SET period = excluded.period, cap = excluded.cap
WHERE m.period < excluded.period OR (m.period = excluded.period AND m.cap < excluded.cap)
RETURNING m.cap;
