"""People and access: sign-up, sign-in, factors, teams, accounts, API keys, queued system mail."""
