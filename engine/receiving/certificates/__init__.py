"""Get and keep TLS certificates of MTA-STS policy hosts by ACME (RFC 8555)."""
