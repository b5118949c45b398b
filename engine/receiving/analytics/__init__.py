"""Add up DMARC reports, TLS reports and delivery times, and read the sums."""
