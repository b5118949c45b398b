"""Saved views: `/v1/views`."""
