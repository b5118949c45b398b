"""Manage the addresses that an account must not send to."""
