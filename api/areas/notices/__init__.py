"""Notices: `/v1/notices`."""
