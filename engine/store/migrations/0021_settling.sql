-- Settling in one call: attempts that end or put off whole messages are sealed and written while the server holds the
-- account heads, so that no turn of a busy process's loop lies between their locking and the commit.

-- All of a batch or nothing: 'done'; 'partly' when one of the rows or heads no longer stands, and 'fenced' when the
-- member is none any more, both with nothing written. Accounts ascend; event_counts gives how many of the events, in
-- their order, are each one's. A row with its place in `stays` true is due again by the `later_` arrays, else it is gone.
-- An event's link is what its hash covers beside the hash and number before it: newline, time, newline, payload.
CREATE FUNCTION settle_whole(
    member uuid, low uuid, high uuid, accounts uuid[], event_counts int[],
    row_ids uuid[], row_domains text[], row_attempts smallint[], stays boolean[],
    statuses text[], ended timestamptz[], moves text[],
    later_ids uuid[], later_domains text[], later_recipients text[], later_waits interval[], later_signatures bytea[],
    day_accounts uuid[], days date[], delivered int[], bounced int[], complained int[], failed int[],
    event_ids uuid[], event_types text[], event_messages uuid[], event_links text[],
    to_ids uuid[], to_places smallint[], to_statuses text[], to_responses text[], to_next timestamptz[], to_made smallint[]
) RETURNS text LANGUAGE plpgsql
-- With the arrays at hand the planner would plan the last statement anew in every call, for 0.35 ms. A plan made while
-- the tables were empty would read them whole once they are not, so callers discard plans every second.
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    head_seqs      bigint[];
    head_hashes    bytea[];
    standing       int;
    event_accounts uuid[] := '{}';
    event_seqs     bigint[] := '{}';
    event_hashes   bytea[] := '{}';
    number         bigint;
    tip            bytea;
    place          int := 0;
BEGIN
    SELECT array_agg(h.seq ORDER BY h.account_id), array_agg(h.hash ORDER BY h.account_id)
    INTO head_seqs, head_hashes
    FROM (SELECT a.account_id, a.seq, a.hash FROM account_heads a
          WHERE a.account_id = ANY(accounts) ORDER BY a.account_id FOR NO KEY UPDATE) AS h;
    IF cardinality(head_seqs) IS DISTINCT FROM cardinality(accounts) THEN
        RETURN 'partly';
    END IF;
    -- Begun with the heads in hand, so it sees what whoever held them before has committed.
    WITH fence AS MATERIALIZED (SELECT FROM shard_members WHERE id = member FOR KEY SHARE)
    SELECT CASE WHEN EXISTS (SELECT FROM fence) THEN
        (SELECT count(*) FROM unnest(row_ids, row_domains, row_attempts) AS n (message_id, domain, attempts)
         JOIN queue q ON q.message_id = n.message_id AND q.domain = n.domain AND q.attempts = n.attempts) END
    INTO standing;
    IF standing IS NULL THEN
        RETURN 'fenced';
    END IF;
    IF standing < cardinality(row_ids) THEN
        RETURN 'partly';
    END IF;

    FOR account IN 1..cardinality(accounts) LOOP
        number := head_seqs[account];
        tip := head_hashes[account];
        FOR own IN 1..event_counts[account] LOOP
            number := number + 1;
            place := place + 1;
            tip := sha256(convert_to(encode(tip, 'hex') || E'\n' || number || event_links[place], 'UTF8'));
            event_accounts[place] := accounts[account];
            event_seqs[place] := number;
            event_hashes[place] := tip;
        END LOOP;
        head_seqs[account] := number;
        head_hashes[account] := tip;
    END LOOP;

    WITH recipient AS (
        UPDATE recipients r
        SET status = n.status, last_response = n.last_response, next_attempt_at = n.next_attempt_at,
            attempts = r.attempts + n.made
        FROM unnest(to_ids, to_places, to_statuses, to_responses, to_next, to_made)
             AS n (message_id, n, status, last_response, next_attempt_at, made)
        WHERE r.message_id = n.message_id AND r.n = n.n AND r.message_id BETWEEN low AND high
          AND n.message_id BETWEEN low AND high
    ), message AS (
        UPDATE messages m
        SET status = n.status, delivered_at = CASE n.status WHEN 'delivered' THEN n.ended ELSE m.delivered_at END
        FROM unnest(row_ids, statuses, ended, moves) AS n (id, status, ended, moves)
        WHERE m.id = n.id AND m.status = ANY(string_to_array(n.moves, ',')) AND m.id BETWEEN low AND high
          AND n.id BETWEEN low AND high
    ), gone AS (
        DELETE FROM queue q USING unnest(row_ids, row_domains, stays) AS n (message_id, domain, stays)
        WHERE q.message_id = n.message_id AND q.domain = n.domain AND NOT n.stays
    ), later AS (
        UPDATE queue q
        SET recipients = n.recipients::jsonb, due_at = clock_timestamp() + n.wait, attempts = q.attempts + 1,
            signature = coalesce(n.signature, q.signature), waiting = NULL, held_by = NULL
        FROM unnest(later_ids, later_domains, later_recipients, later_waits, later_signatures)
             AS n (message_id, domain, recipients, wait, signature)
        WHERE q.message_id = n.message_id AND q.domain = n.domain
    ), day AS (
        INSERT INTO account_days AS d (account_id, day, delivered, bounced, complained, failed)
        SELECT * FROM unnest(day_accounts, days, delivered, bounced, complained, failed)
        ON CONFLICT (account_id, day) DO UPDATE
        SET delivered = d.delivered + excluded.delivered, bounced = d.bounced + excluded.bounced,
            complained = d.complained + excluded.complained, failed = d.failed + excluded.failed
    ), event AS (
        INSERT INTO events (id, account_id, seq, type, message_id, occurred_at, payload, hash)
        SELECT n.id, n.account_id, n.seq, n.type, n.message_id, substr(n.link, 2, 24)::timestamptz, substr(n.link, 27),
               n.hash
        FROM unnest(event_ids, event_accounts, event_seqs, event_types, event_messages, event_links, event_hashes)
             AS n (id, account_id, seq, type, message_id, link, hash)
        RETURNING id, account_id, seq, type
    ), posted AS (
        INSERT INTO webhook_queue (webhook_id, event_id, account_id, seq, due_at)
        SELECT w.id, e.id, e.account_id, e.seq, now() FROM event e
        JOIN webhooks w ON w.account_id = e.account_id AND w.status = 'active' AND webhook_wants(w.event_types, e.type)
    )
    UPDATE account_heads h SET seq = n.seq, hash = n.hash
    FROM unnest(accounts, head_seqs, head_hashes) AS n (account_id, seq, hash)
    WHERE h.account_id = n.account_id;
    RETURN 'done';
END
$$;
