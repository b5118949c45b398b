"""API keys: made once, stored as a digest, revoked but never deleted."""
