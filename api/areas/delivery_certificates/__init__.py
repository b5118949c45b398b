"""Certificates about the delivery of messages, and the public keys that verify them."""
