"""The clock of local mode."""
