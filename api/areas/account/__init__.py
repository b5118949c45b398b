"""The account and its allowance."""
