"""Sub-accounts of the caller's account."""
