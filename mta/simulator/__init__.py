"""Recipients whose outcome is known beforehand: a mail server inside each mta process, and complaints about mail."""
