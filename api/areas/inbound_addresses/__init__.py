"""Inbound addresses: `/v1/inbound/addresses`."""
