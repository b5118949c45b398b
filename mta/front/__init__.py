"""SMTP before several cells: submission and incoming mail, passed to the cell of an account (process kind `front`)."""
