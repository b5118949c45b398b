"""SMTP submission: customers' mail programs log in with an API key and send, with the same acceptance as the API.

The processes that run it are of the kind `relay`, as in settings, metrics and `ops`.
"""
