"""Entries of the service processes that have no package of their own."""
