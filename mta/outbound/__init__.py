"""Outbound delivery in stages: fetch, route, schedule, deliver, complete (`pipeline.py`)."""
