"""Figures over an account's mail: messages by local day, and what a month has used."""
