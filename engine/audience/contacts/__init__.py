"""Contacts, contact lists and segments: the people to whom an account sends broadcasts."""
