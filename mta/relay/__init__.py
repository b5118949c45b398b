"""The SMTP relay: submission by customers' own mail programs, into the same acceptance as the API."""
