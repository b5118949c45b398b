"""Issue and consume single-use tokens: sent by mail to prove control of a mailbox, or shown by the operator."""
