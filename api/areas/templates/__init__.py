"""Templates of customers."""
