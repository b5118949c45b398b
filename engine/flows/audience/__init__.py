"""Flows of contacts, broadcasts and unsubscribing."""
