"""Outbound delivery: load, sign, route, pool, deliver, settle."""
