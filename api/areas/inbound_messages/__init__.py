"""Received messages over HTTP."""
