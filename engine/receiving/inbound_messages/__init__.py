"""Received messages: list, search, count, read, mark, delete and download them."""
