"""Deleting the account."""
