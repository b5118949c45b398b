"""Broadcasts: `/v1/broadcasts`."""
