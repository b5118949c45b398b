-- Filters of `GET /v1/messages` that few messages match. A message over HTTP without a template adds one entry for each
-- recipient; templates, other sources and bounces have partial indexes (decision 0063).

-- One number for an account and a name. An index by it is the only one that serves a list of both, so that no statistics
-- mislead the planner, and it is smaller than one by both. The reader compares both again: numbers may collide.
CREATE FUNCTION account_key(account uuid, name text) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN uuid_hash_extended(account, hashtextextended(name, 0));

-- The domain of a stored address, which is in lower case.
CREATE FUNCTION domain_of(address text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN split_part(address, '@', -1);

-- The scope of a bounce. A quotation mark inside a text of the payload is escaped, so that no reply of a server matches.
CREATE FUNCTION bounce_scope(payload text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN substring(payload FROM '"scope":"([a-z]+)"');

CREATE INDEX messages_by_template ON messages (account_key(account_id, template), id) WHERE template IS NOT NULL;
CREATE INDEX messages_by_source ON messages (account_key(account_id, source), id) WHERE source <> 'api';
CREATE INDEX recipients_by_domain ON recipients (account_key(account_id, domain_of(address)), message_id);
CREATE INDEX events_by_bounce_scope ON events (account_key(account_id, bounce_scope(payload)), message_id)
    WHERE type = 'bounced';
CREATE INDEX broadcast_recipients_in_order ON broadcast_recipients (broadcast_id, message_id)
    WHERE message_id IS NOT NULL;
