"""Codes: one-time codes that verify addresses, and checks of addresses."""
