"""Sending: from a request to the stored message, and from an attempt to its outcome; what both need."""
