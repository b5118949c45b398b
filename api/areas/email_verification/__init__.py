"""Endpoints to verify or change an email address, and to change or reset a password."""
