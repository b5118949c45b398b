"""Sending domains: their keys, the DNS records to publish, and whether those were found."""
