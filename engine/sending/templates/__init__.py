"""Manage templates and their immutable versions."""
