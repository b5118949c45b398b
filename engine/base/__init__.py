"""Pure ground floor: ids, time, refusals, scopes, plans, settings. No I/O here."""
