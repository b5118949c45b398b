"""Accounts: made by the operator or at sign-up, each with its head, its owner and its transactional stream."""
