"""The requests of an account to the API."""
