"""Measure alert rules over the areas that they watch, and tell people and webhooks."""
