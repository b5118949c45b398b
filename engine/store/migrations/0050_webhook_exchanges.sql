-- The exact request and answer of each attempt at a webhook post, beside the answer's body. The body of the request is the
-- same on every attempt and is made from the event again. Null for attempts before this migration, and where nothing was
-- sent.
ALTER TABLE webhook_attempts
    ADD COLUMN url text,
    ADD COLUMN signature text,            -- as sent in Service-Signature
    ADD COLUMN signature_previous text,   -- as sent in Service-Signature-Previous
    ADD COLUMN answer_headers text;       -- lines of "Name: value"

-- What the owner notes about an endpoint.
ALTER TABLE webhooks ADD COLUMN description text NOT NULL DEFAULT '';
