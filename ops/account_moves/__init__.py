"""Move accounts from one cell to another, used by `ops cells move`."""
