"""Manage sending domains: keys, DNS records and their verification."""
