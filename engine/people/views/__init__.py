"""Saved views: filters of lists under a name, per person and shared."""
