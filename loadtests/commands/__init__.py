"""Click commands `ops bench`, `ops drill`, `ops hosts`, `ops loadtest` and `ops simulate`, one module each."""
