"""Reading stored messages and their waybills."""
