"""Keep the images of emails that are made of blocks."""
