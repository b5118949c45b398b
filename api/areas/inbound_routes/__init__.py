"""Inbound routes: `/v1/inbound/routes`."""
