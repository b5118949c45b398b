"""The mail in the local sink."""
