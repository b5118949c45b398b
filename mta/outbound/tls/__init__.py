"""TLS towards mail servers: STARTTLS policy, MTA-STS, DANE and TLS reports."""
