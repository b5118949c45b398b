"""Broadcasts, contacts and unsubscribing, as far as they span several areas."""
