"""Recipients whose fate is known beforehand: a mail server of the process itself, and the complaints that follow."""
