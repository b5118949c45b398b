"""Inbound addresses: the addresses that an account claims under its domains to receive mail at."""
