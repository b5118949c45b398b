"""Move the service time of an installation in local mode, and wait until all that is due has happened."""
