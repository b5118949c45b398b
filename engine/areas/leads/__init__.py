"""Enquiries from the contact form of whoever runs the service."""
