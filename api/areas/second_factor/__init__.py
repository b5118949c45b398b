"""The second factor of the person who is signed in."""
