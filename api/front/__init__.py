"""The front of several cells: it passes each HTTP request to the cell of its account."""
