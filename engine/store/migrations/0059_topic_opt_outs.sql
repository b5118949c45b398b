-- Opt-outs of topics are listed, newest first, and shown with the contact.

CREATE INDEX topic_opt_outs_newest ON topic_opt_outs (account_id, list_id, created_at DESC, address DESC);
CREATE INDEX topic_opt_outs_of_address ON topic_opt_outs (account_id, address);
