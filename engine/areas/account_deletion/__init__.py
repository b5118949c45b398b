"""Accounts on their way out: a deletion that was asked for, and what is left of an account after it."""
