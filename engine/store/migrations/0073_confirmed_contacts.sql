-- Webhooks may subscribe to confirmations of contacts too; all other account events stay inside the account log.
CREATE OR REPLACE FUNCTION webhook_wants(event_types text[], type text) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN (position('.' IN type) = 0 OR type IN (
           'alert.ended', 'alert.fired', 'broadcast.finished', 'broadcast.paused', 'contact.confirmed',
           'contact.unsubscribed', 'domain.failed', 'domain.verified', 'suppression.added', 'verification.finished'))
   AND (cardinality(event_types) = 0 OR type = ANY (event_types));
