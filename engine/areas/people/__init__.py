"""People: their addresses, passwords and profiles, whatever accounts they belong to."""
