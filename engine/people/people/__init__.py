"""Store people: addresses, passwords and profiles, independent of their accounts."""
