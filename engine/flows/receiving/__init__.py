"""Receive mail: find the recipients, store messages and reports, act on reports, forward."""
