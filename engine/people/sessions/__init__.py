"""Store sessions of signed-in people, by the digest of a secret in a cookie."""
