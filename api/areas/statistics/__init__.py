"""Figures over an account's mail."""
