"""Passkeys: registering them, signing in with one, and the list of one's own."""
