"""Notices: what needs a person, derived from the present state of an account."""
