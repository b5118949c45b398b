"""The simulator: recipients with a fixed outcome, served by a mail server inside each mta process, and complaints."""
