-- Agents: what a key lets one send (engine.people.api_keys.agent_policy), the agent of a request, and the sends that wait
-- for a person's approval.
ALTER TABLE api_keys
    ADD COLUMN agent_recipients text[],               -- addresses and @domains; null: any
    ADD COLUMN agent_approval   text CHECK (agent_approval IN ('none', 'required'));  -- null: a key without a policy

ALTER TABLE api_requests ADD COLUMN agent text;

CREATE TABLE agent_sends (
    id           uuid PRIMARY KEY,
    account_id   uuid NOT NULL REFERENCES accounts,
    key_id       uuid NOT NULL,
    agent        text,
    state        text NOT NULL CHECK (state IN ('pending', 'approved', 'sent', 'declined')),
    digest       bytea NOT NULL,                      -- of the request: the same one asks once
    sender       text NOT NULL,
    subject      text NOT NULL,
    recipients   text[] NOT NULL,                     -- canonical addresses
    sealed_email bytea,                               -- the request; deleted with the decision
    message_id   uuid,
    decided_by   uuid,
    created_at   timestamptz NOT NULL,
    expires_at   timestamptz NOT NULL,
    decided_at   timestamptz
);
CREATE INDEX agent_sends_by_account ON agent_sends (account_id, id);
CREATE INDEX agent_sends_by_end ON agent_sends (expires_at);
