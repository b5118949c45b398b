"""The keys of an account."""
