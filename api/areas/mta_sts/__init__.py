"""Hosted MTA-STS policies."""
