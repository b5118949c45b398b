"""Installations with several cells: the directory, claims across cells, and whose a key is."""
