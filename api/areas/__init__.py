"""The operations, area by area."""
