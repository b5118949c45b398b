"""Signing in with an identity provider: its description and keys, its tokens, and who is who there."""
