"""Live tails of the account log."""
