"""Emails that agents ask to send: confirmed by a token, or approved by a person."""
