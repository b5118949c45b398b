"""Store scheduled account deletions, and what remains of erased accounts."""
