"""The account log, account heads, quota and plan limits."""
