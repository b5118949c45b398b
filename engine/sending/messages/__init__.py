"""Read stored messages and their waybills."""
