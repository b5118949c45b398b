-- name: settled_on
-- Count the recipients of account $1 that bounced, complained and were settled on day $2, without simulated ones, and
-- count the simulated messages.
SELECT coalesce(d.bounced, 0) - coalesce(s.bounced, 0) AS bounced,
       coalesce(d.complained, 0) - coalesce(s.complained, 0) AS complained,
       coalesce(d.delivered + d.bounced + d.failed, 0) - coalesce(s.settled, 0) AS settled,
       coalesce(s.messages, 0) AS simulated
FROM (SELECT $1::uuid AS account_id, $2::date AS day) n
LEFT JOIN account_days d ON d.account_id = n.account_id AND d.day = n.day
LEFT JOIN simulated_days s ON s.account_id = n.account_id AND s.day = n.day;
