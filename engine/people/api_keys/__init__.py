"""Create, check and revoke API keys; only a digest of a key is stored."""
