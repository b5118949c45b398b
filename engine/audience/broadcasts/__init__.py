"""Broadcasts: one message to each contact of a list or a segment."""
