"""Read, export and verify the account log."""
