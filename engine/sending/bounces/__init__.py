"""Failed deliveries of an account: by class, and the history of an address."""
