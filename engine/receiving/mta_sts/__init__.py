"""Host MTA-STS policies (RFC 8461) for the domains of accounts."""
