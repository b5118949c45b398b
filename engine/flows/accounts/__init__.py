"""Work on accounts: API keys, teams, sub-accounts, suspension, deletion, the service's own mail."""
