"""Reading and verifying the account log."""
