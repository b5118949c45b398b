"""Unsubscribing: the links in messages, and the topics that people opted out of."""
