"""The suppression list."""
