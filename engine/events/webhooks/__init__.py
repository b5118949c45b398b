"""Manage webhook endpoints and post events to them."""
