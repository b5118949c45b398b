"""The account log read, exported and verified."""
