"""Definitions of the `ops` commands, one module per subject; the work itself is in the modules of `ops`."""
