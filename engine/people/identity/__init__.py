"""Sign people in with an OpenID Connect identity provider: its metadata, keys and tokens, and linked identities."""
