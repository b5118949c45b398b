"""Who is on an account, and who is invited to it."""
