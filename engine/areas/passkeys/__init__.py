"""Passkeys: key pairs in people's devices, known here by their public halves (W3C Web Authentication, level 3)."""
