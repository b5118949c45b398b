-- Live tails: how many an account has open. The account log: checking its chain where it lies.

-- An account's places for tails, numbered from 1. A place is taken while its lease runs; its worker renews it, so
-- that the places of one that died come back by themselves. Not logged: after a crash of the server the workers
-- take their places again.
CREATE UNLOGGED TABLE tail_slots (
    account_id uuid NOT NULL,
    slot       smallint NOT NULL,
    holder     uuid NOT NULL,                        -- one tail
    expires_at timestamptz NOT NULL,
    PRIMARY KEY (account_id, slot)
) WITH (fillfactor = 50);

-- A moment exactly as the service writes it, and as the chain hashes it (engine.base.clock.iso).
CREATE FUNCTION iso(at timestamptz) RETURNS text LANGUAGE sql STABLE PARALLEL SAFE
RETURN to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"');

-- The hash of an event after the one with hash `previous` (engine.ledger.log.chained).
CREATE FUNCTION chained_hash(previous bytea, seq bigint, occurred_at timestamptz, payload text)
RETURNS bytea LANGUAGE sql STABLE PARALLEL SAFE
RETURN sha256(convert_to(encode(previous, 'hex') || chr(10) || seq || chr(10) || iso(occurred_at) || chr(10) || payload, 'UTF8'));

-- Whether an event is as it was sealed: its hash follows from the one before and from its content, its column `type` says
-- what the sealed text says, and it names a message where that does (which one, the reader compares: base32 is slow in
-- here). A moment has whole milliseconds: the hash sees no smaller part.
CREATE FUNCTION event_is_sound(
    previous bytea, seq bigint, type text, message_id uuid, occurred_at timestamptz, payload text, hash bytea
) RETURNS boolean LANGUAGE sql STABLE PARALLEL SAFE
RETURN coalesce(
    hash = chained_hash(previous, seq, occurred_at, payload)
    AND date_trunc('milliseconds', occurred_at) = occurred_at
    AND starts_with(payload, '{"type":"' || type || '","messageId":'
                             || CASE WHEN message_id IS NULL THEN 'null,' ELSE '"msg_' END),
    false);
