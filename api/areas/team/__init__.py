"""The team of an account."""
