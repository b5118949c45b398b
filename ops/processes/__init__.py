"""Entry points of the service processes that have no separate package."""
