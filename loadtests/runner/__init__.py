"""`ops loadtest`: start a service, put the load of a Locust scenario on it, and check what it accepted."""
