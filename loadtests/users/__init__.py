"""Locust users that all scenarios share, and the files in which they record the load.

This package and `loadtests.scenarios` do not import the service: Locust runs in a process of its own, with gevent.
"""
