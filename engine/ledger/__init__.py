"""Append-only facts: the account log, quota counts, idempotency."""
