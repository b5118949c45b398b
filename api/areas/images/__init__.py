"""Images of emails that are made of blocks."""
