"""The Locust users that all scenarios share, and the record that they write.

Nothing here or in `loadtests/scenarios` imports the service: a user knows it by its addresses alone.
"""
