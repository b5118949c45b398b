"""Work that spans areas, by subject: sending, people, accounts, retention."""
