"""Alerts: `/v1/alerts`."""
