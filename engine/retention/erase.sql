-- name: try_lock
-- Take the lock of erasures; `held` is false if another session has it.
SELECT pg_try_advisory_lock($1::bigint # :lock_schema) AS held;

-- name: unlock
-- Release the lock of erasures.
SELECT pg_advisory_unlock($1::bigint # :lock_schema);

-- name: close_accounts
-- Close accounts $1: end their sessions, disable their webhooks, and refuse their keys from now on.
WITH ended AS (
    DELETE FROM sessions WHERE account_id = ANY ($1::uuid[])
), silent AS (
    UPDATE webhooks SET status = 'disabled' WHERE account_id = ANY ($1::uuid[]) AND status = 'active'
)
UPDATE accounts SET status = 'closing' WHERE id = ANY ($1::uuid[]) AND status <> 'closing' RETURNING id;

-- name: hold_all
-- Hold all mail of the account with public id $2, by hold $1 with reason $3 or by the existing hold.
INSERT INTO holds (id, kind, target, reason, created_at) VALUES ($1, 'account', $2, $3, now())
ON CONFLICT (kind, target) WHERE NOT ended DO UPDATE SET reason = excluded.reason, until = NULL;

-- name: unsent
-- Delete the next $2 queued deliveries of account $1.
DELETE FROM queue WHERE (message_id, domain) IN (SELECT message_id, domain FROM queue WHERE account_id = $1 LIMIT $2);

-- name: unposted
-- Delete the next $2 pending webhook posts of account $1.
DELETE FROM webhook_queue WHERE (webhook_id, event_id) IN (
    SELECT q.webhook_id, q.event_id FROM webhooks w JOIN webhook_queue q ON q.webhook_id = w.id WHERE w.account_id = $1 LIMIT $2);

-- name: unscheduled
-- Remove the next $2 scheduled messages of account $1 from the schedule.
DELETE FROM schedules WHERE message_id IN (SELECT message_id FROM schedules WHERE account_id = $1 LIMIT $2);

-- name: unforwarded
-- Remove the next $2 received messages of account $1 from the queue of those to be forwarded.
DELETE FROM inbound_forwards WHERE message_id IN (SELECT message_id FROM inbound_forwards WHERE account_id = $1 LIMIT $2);

-- name: unforgotten
-- Remove the next $2 received messages of account $1 from those whose content is to be deleted.
DELETE FROM inbound_forgets WHERE message_id IN (SELECT message_id FROM inbound_forgets WHERE account_id = $1 LIMIT $2);

-- name: next_messages
-- Return the next $2 messages of account $1 (decision 0086).
SELECT id FROM messages WHERE account_id = ANY (ARRAY[$1::uuid]) ORDER BY account_id, id LIMIT $2;

-- name: erase_messages
-- Delete messages $1 and everything that refers to them; $2 and $3 bound their ids, $4 are their public ids.
WITH waiting AS (
    DELETE FROM queue WHERE message_id = ANY ($1::uuid[])
), scheduled AS (
    DELETE FROM schedules WHERE message_id = ANY ($1::uuid[])
), held AS (
    DELETE FROM holds WHERE kind = 'message' AND target = ANY ($4::text[])
), report AS (
    UPDATE tls_reports SET message_id = NULL WHERE message_id = ANY ($1::uuid[])
), content_key AS (
    DELETE FROM content_keys WHERE message_id = ANY ($1::uuid[])
), body AS (
    DELETE FROM message_bodies WHERE message_id = ANY ($1::uuid[]) AND message_id BETWEEN $2 AND $3
), recipient AS (
    DELETE FROM recipients WHERE message_id = ANY ($1::uuid[]) AND message_id BETWEEN $2 AND $3
)
DELETE FROM messages WHERE id = ANY ($1::uuid[]) AND id BETWEEN $2 AND $3;

-- name: erase_attempts
-- Delete the attempts of the next $2 webhook posts of account $1.
DELETE FROM webhook_attempts WHERE (webhook_id, event_id) IN (
    SELECT a.webhook_id, a.event_id FROM webhooks w JOIN webhook_attempts a ON a.webhook_id = w.id
    WHERE w.account_id = $1 LIMIT $2);

-- name: erase_events
-- Delete the next $2 events of the log of account $1; its head keeps the log's end.
DELETE FROM events WHERE account_id = $1 AND seq IN (SELECT seq FROM events WHERE account_id = $1 ORDER BY seq LIMIT $2);

-- name: erase_suppressions
-- Delete the next $2 suppressions of account $1.
DELETE FROM suppressions WHERE account_id = $1
  AND address IN (SELECT address FROM suppressions WHERE account_id = $1 LIMIT $2);

-- name: erase_links
-- Delete the next $2 unsubscribe links of account $1.
DELETE FROM unsubscribe_links WHERE id IN (SELECT id FROM unsubscribe_links WHERE account_id = $1 LIMIT $2);

-- name: erase_topic_opt_outs
-- Delete the next $2 opt-outs of topics of account $1.
DELETE FROM topic_opt_outs WHERE account_id = $1 AND (list_id, address) IN (
    SELECT list_id, address FROM topic_opt_outs WHERE account_id = $1 LIMIT $2);

-- name: erase_idempotency
-- Delete the next $2 idempotency keys of account $1.
DELETE FROM idempotency WHERE account_id = $1 AND key IN (SELECT key FROM idempotency WHERE account_id = $1 LIMIT $2);

-- name: erase_quarters
-- Delete the next $2 rows of quarter-hour figures of account $1.
DELETE FROM message_quarters WHERE account_id = $1 AND ctid = ANY (ARRAY(
    SELECT ctid FROM message_quarters WHERE account_id = $1 LIMIT $2));

-- name: erase_tag_quarters
-- Delete the next $2 rows of quarter-hour figures by tag of account $1.
DELETE FROM message_tag_quarters WHERE account_id = $1 AND ctid = ANY (ARRAY(
    SELECT ctid FROM message_tag_quarters WHERE account_id = $1 LIMIT $2));

-- name: erase_versions
-- Delete the next $2 template versions of account $1.
DELETE FROM template_versions WHERE account_id = $1 AND (slug, version) IN (
    SELECT slug, version FROM template_versions WHERE account_id = $1 LIMIT $2);

-- name: erase_layout_versions
-- Delete the next $2 layout versions of account $1.
DELETE FROM layout_versions WHERE account_id = $1 AND (slug, version) IN (
    SELECT slug, version FROM layout_versions WHERE account_id = $1 LIMIT $2);

-- name: erase_images
-- Delete the next $2 images of account $1.
DELETE FROM images WHERE account_id = $1 AND id IN (SELECT id FROM images WHERE account_id = $1 LIMIT $2);

-- name: erase_copies
-- Delete the next $2 digests of recently received messages of account $1.
DELETE FROM inbound_recent WHERE ctid = ANY (ARRAY(SELECT ctid FROM inbound_recent WHERE account_id = $1 LIMIT $2));

-- name: erase_reports
-- Delete the next $2 report mails about account $1.
DELETE FROM report_mails WHERE id IN (SELECT id FROM report_mails WHERE account_id = $1 LIMIT $2);

-- name: erase_dmarc
-- Delete the next $2 rows of DMARC reports about account $1.
DELETE FROM dmarc_rows WHERE ctid = ANY (ARRAY(SELECT ctid FROM dmarc_rows WHERE account_id = $1 LIMIT $2));

-- name: erase_day_counts
-- Delete the next $2 counts of received messages by day of account $1.
DELETE FROM inbound_day_counts
WHERE ctid = ANY (ARRAY(SELECT ctid FROM inbound_day_counts WHERE account_id = $1 LIMIT $2));

-- name: erase_deliveries
-- Delete the next groups of delivery counts of account $1, a tenth of $2, with their histograms.
DELETE FROM delivery_groups
WHERE ctid = ANY (ARRAY(SELECT ctid FROM delivery_groups WHERE account_id = $1 LIMIT $2 / 10));

-- name: erase_delivery_weeks
-- Delete the next weekly sums of delivery counts of account $1, a tenth of $2, with their histograms.
DELETE FROM delivery_weeks
WHERE ctid = ANY (ARRAY(SELECT ctid FROM delivery_weeks WHERE account_id = $1 LIMIT $2 / 10));

-- name: erase_delivery_providers
-- Delete the next counts by provider of account $1, a tenth of $2, with their histograms.
DELETE FROM delivery_providers
WHERE ctid = ANY (ARRAY(SELECT ctid FROM delivery_providers WHERE account_id = $1 LIMIT $2 / 10));

-- name: erase_delivery_waits
-- Delete the next sums of waiting times of account $1, a tenth of $2, with their histograms.
DELETE FROM delivery_waits
WHERE ctid = ANY (ARRAY(SELECT ctid FROM delivery_waits WHERE account_id = $1 LIMIT $2 / 10));

-- name: erase_requests
-- Delete the next $2 requests of account $1 from the request log.
DELETE FROM api_requests WHERE id = ANY (ARRAY(SELECT id FROM api_requests WHERE account_id = $1 LIMIT $2))
  AND account_id = $1;

-- name: erase_members
-- Delete the next $2 memberships of contacts of account $1.
DELETE FROM contact_list_members WHERE (list_id, contact_id) IN (
    SELECT m.list_id, m.contact_id FROM contact_lists l JOIN contact_list_members m ON m.list_id = l.id
    WHERE l.account_id = $1 LIMIT $2);

-- name: erase_contacts
-- Delete the next $2 contacts of account $1.
DELETE FROM contacts WHERE id IN (SELECT id FROM contacts WHERE account_id = $1 LIMIT $2);

-- name: erase_broadcasts
-- Delete the next $2 recipients of broadcasts of account $1.
DELETE FROM broadcast_recipients WHERE ctid = ANY (ARRAY(
    SELECT r.ctid FROM broadcasts b JOIN broadcast_recipients r ON r.broadcast_id = b.id WHERE b.account_id = $1 LIMIT $2));

-- name: leavers
-- Lock and return the people on account $1 who are on no other account, with their addresses.
SELECT u.id, u.email FROM members m JOIN users u ON u.id = m.user_id
WHERE m.account_id = $1 AND NOT EXISTS (SELECT 1 FROM members o WHERE o.user_id = m.user_id AND o.account_id <> $1)
ORDER BY u.id FOR UPDATE OF u;

-- name: letters_to
-- Return at most $2 messages of the platform account to the addresses $1.
SELECT r.message_id AS id FROM platform p JOIN recipients r ON r.account_id = p.account_id
WHERE lower(r.address) = ANY ($1::text[]) ORDER BY r.message_id LIMIT $2;

-- name: erase_people
-- Delete the people $2 with the addresses $3, all memberships and invitations of account $1, and system mail that is
-- still to be sent to these people or to those invited.
WITH member AS (
    DELETE FROM members WHERE account_id = $1
), moved AS (
    UPDATE users SET last_account_id = NULL WHERE last_account_id = $1 AND id <> ALL ($2::uuid[])
), letter AS (
    DELETE FROM system_mail WHERE address = ANY ($3::text[])
       OR (kind = 'invite' AND address IN (SELECT email FROM invites WHERE account_id = $1))
), bounce AS (
    DELETE FROM suppressions WHERE address = ANY ($3::text[]) AND account_id IN (SELECT account_id FROM platform)
), invite AS (
    DELETE FROM invites WHERE account_id = $1
)
DELETE FROM users WHERE id = ANY ($2::uuid[]);

-- name: erase_rest
-- Delete the rows of account $1, public id $2, in tables where it has few.
WITH template AS (DELETE FROM templates WHERE account_id = $1),
     layout AS (DELETE FROM layouts WHERE account_id = $1),
     broadcast_progress AS (
         DELETE FROM broadcast_progress WHERE broadcast_id IN (SELECT id FROM broadcasts WHERE account_id = $1)),
     broadcast_outcomes AS (
         DELETE FROM broadcast_outcomes WHERE broadcast_id IN (SELECT id FROM broadcasts WHERE account_id = $1)),
     broadcast_work AS (DELETE FROM broadcast_work WHERE account_id = $1),
     broadcast_watch AS (DELETE FROM broadcast_watches WHERE account_id = $1),
     broadcast_review AS (DELETE FROM broadcast_reviews WHERE account_id = $1),
     broadcast AS (DELETE FROM broadcasts WHERE account_id = $1),
     contact_list AS (DELETE FROM contact_lists WHERE account_id = $1),
     segment AS (DELETE FROM contact_segments WHERE account_id = $1),
     contact_total AS (DELETE FROM contact_totals WHERE account_id = $1),
     confirmation AS (DELETE FROM contact_confirmations WHERE account_id = $1),
     certificate AS (DELETE FROM tls_certificates WHERE domain_id IN (SELECT id FROM domains WHERE account_id = $1)),
     sts_policy AS (DELETE FROM hosted_sts_policies WHERE account_id = $1),
     route AS (DELETE FROM inbound_routes WHERE account_id = $1),
     address AS (DELETE FROM inbound_addresses WHERE account_id = $1),
     received AS (DELETE FROM inbound_counts WHERE account_id = $1),
     label AS (DELETE FROM receiving_labels WHERE account_id = $1),
     branding AS (DELETE FROM verification_settings WHERE account_id = $1),
     verification AS (DELETE FROM verifications WHERE account_id = $1),
     destination AS (DELETE FROM verification_destinations WHERE account_id = $1),
     checks AS (DELETE FROM address_check_reservations WHERE account_id = $1),
     usage AS (DELETE FROM plan_usage WHERE account_id = $1),
     subscription AS (DELETE FROM subscriptions WHERE account_id = $1),
     billing_profile AS (DELETE FROM billing_profiles WHERE account_id = $1),
     charge AS (DELETE FROM renewal_charges WHERE account_id = $1),
     history AS (DELETE FROM billing_heads WHERE account_id = $1 AND purged_through_seq = seq),
     kept_retention AS (DELETE FROM kept_retentions WHERE account_id = $1),
     listing AS (
         DELETE FROM blocklist_listings l
         WHERE l.kind = 'domain' AND l.target IN (SELECT name FROM domains WHERE account_id = $1)
           AND NOT EXISTS (
               SELECT FROM domains d WHERE d.name = l.target AND d.account_id <> $1 AND d.status = 'verified')),
     alert_rule AS (DELETE FROM alert_rules WHERE account_id = $1),
     alert_event AS (DELETE FROM alert_events WHERE account_id = $1),
     limit_mail AS (DELETE FROM limit_mails WHERE account_id = $1),
     domain AS (DELETE FROM domains WHERE account_id = $1),
     token AS (DELETE FROM cloudflare_tokens WHERE account_id = $1),
     stream AS (DELETE FROM streams WHERE account_id = $1),
     api_key AS (DELETE FROM api_keys WHERE account_id = $1),
     agent_send AS (DELETE FROM agent_sends WHERE account_id = $1),
     view AS (DELETE FROM saved_views WHERE account_id = $1),
     webhook_hour AS (DELETE FROM webhook_hours WHERE webhook_id IN (SELECT id FROM webhooks WHERE account_id = $1)),
     webhook AS (DELETE FROM webhooks WHERE account_id = $1),
     outcome AS (DELETE FROM account_days WHERE account_id = $1),
     accepted AS (DELETE FROM accepted_days WHERE account_id = $1),
     simulated AS (DELETE FROM simulated_days WHERE account_id = $1),
     judged AS (DELETE FROM outcome_quarters WHERE account_id = $1),
     judged_days AS (DELETE FROM outcome_days WHERE account_id = $1),
     judged_sources AS (DELETE FROM complaint_sources WHERE account_id = $1),
     standing AS (DELETE FROM account_standings WHERE account_id = $1),
     suspension AS (DELETE FROM suspensions WHERE account_id = $1),
     tail AS (DELETE FROM tail_slots WHERE account_id = $1),
     lead AS (DELETE FROM leads WHERE account_id = $1),
     delivery_count AS (DELETE FROM delivery_counts WHERE account_id = $1),
     changed AS (UPDATE cache_changes SET account_id = NULL WHERE account_id = $1),
     dmarc_report AS (DELETE FROM dmarc_reports WHERE account_id = $1),
     tls_report AS (DELETE FROM received_tls_reports WHERE account_id = $1),
     tls_row AS (DELETE FROM received_tls_rows WHERE account_id = $1),
     erasure AS (DELETE FROM erasures WHERE account_id = $1),
     erasure_key AS (DELETE FROM erasure_keys WHERE account_id = $1),
     erased_suppression AS (DELETE FROM erased_suppressions WHERE account_id = $1),
     held AS (DELETE FROM holds WHERE kind = 'account' AND target = $2)
DELETE FROM account_records WHERE account_id = $1;

-- name: remaining
-- Return whether account $1 has new rows since it was swept.
SELECT EXISTS (SELECT 1 FROM messages WHERE account_id = $1) OR EXISTS (SELECT 1 FROM events WHERE account_id = $1)
    OR EXISTS (SELECT 1 FROM schedules WHERE account_id = $1) OR EXISTS (SELECT 1 FROM idempotency WHERE account_id = $1)
    OR EXISTS (SELECT 1 FROM suppressions WHERE account_id = $1)
    OR EXISTS (SELECT 1 FROM unsubscribe_links WHERE account_id = $1)
    OR EXISTS (SELECT 1 FROM topic_opt_outs WHERE account_id = $1)
    OR EXISTS (SELECT 1 FROM webhooks w JOIN webhook_queue q ON q.webhook_id = w.id WHERE w.account_id = $1)
    OR EXISTS (SELECT 1 FROM webhooks w JOIN webhook_attempts a ON a.webhook_id = w.id WHERE w.account_id = $1)
    OR EXISTS (SELECT 1 FROM inbound_messages WHERE account_id = $1)
    OR EXISTS (SELECT 1 FROM inbound_recent WHERE account_id = $1)
    OR EXISTS (SELECT 1 FROM inbound_day_counts WHERE account_id = $1)
    OR EXISTS (SELECT 1 FROM report_mails WHERE account_id = $1)
    OR EXISTS (SELECT 1 FROM dmarc_rows WHERE account_id = $1)
    OR EXISTS (SELECT 1 FROM message_tag_quarters WHERE account_id = $1)
    OR EXISTS (SELECT 1 FROM delivery_groups WHERE account_id = $1)
    OR EXISTS (SELECT 1 FROM delivery_weeks WHERE account_id = $1)
    OR EXISTS (SELECT 1 FROM delivery_providers WHERE account_id = $1)
    OR EXISTS (SELECT 1 FROM delivery_waits WHERE account_id = $1)
    OR EXISTS (SELECT 1 FROM api_requests WHERE account_id = $1)
    OR EXISTS (SELECT 1 FROM contacts WHERE account_id = $1)
    OR EXISTS (SELECT 1 FROM broadcasts b JOIN broadcast_recipients r ON r.broadcast_id = b.id WHERE b.account_id = $1)
    OR EXISTS (SELECT 1 FROM accounts WHERE parent_id = $1) AS something;

-- name: erase_head
-- Delete the head of account $1.
DELETE FROM account_heads WHERE account_id = $1;

-- name: erase_request
-- Delete the deletion request of account $1.
DELETE FROM deletions WHERE account_id = $1;

-- name: erase_account
-- Delete account $1.
DELETE FROM accounts WHERE id = $1;
