"""Record the requests of an account to the API, and list them."""
