"""Source addresses: which address a delivery leaves from, and how servers treat it."""
