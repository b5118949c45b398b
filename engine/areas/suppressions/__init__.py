"""Addresses an account must not send to, and why."""
