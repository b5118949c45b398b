"""What every operation shares: its record, authentication, limits, decoding, refusals, OpenAPI."""
