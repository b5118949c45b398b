"""Manage the message streams of an account."""
