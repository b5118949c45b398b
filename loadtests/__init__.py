"""Load on a running service, over the wire: Locust scenarios, what they write down, and the peers to compare with.

`ops loadtest` starts them. Nothing here imports the service: a scenario knows it by its addresses alone.
"""
