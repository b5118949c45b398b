-- name: append_events
-- Sealed events: ids $1, accounts $2, seqs $3, types $4, messages $5, times $6, payloads $7, hashes $8.
INSERT INTO events (id, account_id, seq, type, message_id, occurred_at, payload, hash)
SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::text[], $5::uuid[], $6::timestamptz[], $7::text[], $8::bytea[]);
