"""Sending domains."""
