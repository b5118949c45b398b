"""Click commands `ops bench`, `ops drill`, `ops hosts` and `ops loadtest`, one module each."""
