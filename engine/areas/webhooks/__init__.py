"""Webhook endpoints and what is posted to them."""
