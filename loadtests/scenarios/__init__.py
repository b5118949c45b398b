"""The Locust users of `ops loadtest`.

Locust runs them in a process of its own, with gevent: this package does not import the service.
"""
