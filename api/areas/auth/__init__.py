"""Signing up, in and out, and the sessions of a person."""
