"""The Python and JavaScript clients: generated from the operations, packed, and served at `/sdk`."""
