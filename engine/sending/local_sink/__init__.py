"""Show an account the mail that the local sink received for it, in local mode."""
