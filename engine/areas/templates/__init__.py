"""Templates and their immutable versions."""
