"""Register and verify passkeys; only their public keys are stored (W3C Web Authentication, level 3)."""
