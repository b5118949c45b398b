"""Message streams of an account."""
