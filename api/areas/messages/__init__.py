"""Reading messages."""
