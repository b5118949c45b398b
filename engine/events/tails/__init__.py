"""Stream the account log live (tails) and page through it (pull)."""
