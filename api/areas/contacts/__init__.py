"""Contacts, contact lists and segments: `/v1/contacts`, `/v1/lists`, `/v1/segments`."""
