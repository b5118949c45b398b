"""Flows of accounts: API keys, teams, sub-accounts, suspension, deletion, system mail."""
