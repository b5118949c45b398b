"""Sites: the mail servers that share one limit, with their queues, windows and connections."""
