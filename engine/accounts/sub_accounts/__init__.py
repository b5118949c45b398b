"""Store sub-accounts: accounts that share people, plan and monthly limit of a parent account."""
