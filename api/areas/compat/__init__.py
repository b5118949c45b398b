"""Endpoints that take the requests of other sending services, for people who switch."""
