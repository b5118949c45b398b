"""`ops loadtest peers`: other mail servers, their configurations, and the comparison with them."""
