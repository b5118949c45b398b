"""Decide on received messages. Pure."""

SPAM_THRESHOLD = 6.0  # score from which a message is spam, as rspamd's default for its `add header` action
