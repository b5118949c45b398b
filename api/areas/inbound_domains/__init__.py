"""Receiving domains: `/v1/inbound/domains`."""
