"""Failed deliveries."""
