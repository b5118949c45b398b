"""Receive mail from other servers (the MX)."""
