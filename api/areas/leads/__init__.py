"""Enquiries from a contact form."""
