"""Alert rules of an account, measured every minute, and the alerts that have fired."""
