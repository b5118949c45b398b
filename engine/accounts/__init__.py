"""Accounts: billing, alerts, the account log, sub-accounts, suspension, deletion, system mail."""
