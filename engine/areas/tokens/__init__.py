"""Single-use tokens: what is sent to a mailbox to prove that somebody reads it."""
