"""What a send request may hold, and the message made of it."""
