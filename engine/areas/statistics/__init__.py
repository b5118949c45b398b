"""Counts of messages over time."""
