"""Audience: contacts with their lists and segments, and broadcasts to them."""
