"""Serve the web console, its modules and styles, and the frame that shows the HTML of a mail."""
