"""Retention: delete records that have expired, erase accounts and addresses."""
