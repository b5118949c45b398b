"""Verifications: one-time codes that prove that a person reads an address."""
