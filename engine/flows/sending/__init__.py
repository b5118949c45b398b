"""Work on messages: accept, schedule, release, hold back, settle, complain."""
