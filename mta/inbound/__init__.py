"""Receive mail: the MX."""
