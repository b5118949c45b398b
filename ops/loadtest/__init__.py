"""`ops loadtest`: load over the wire with Locust, a report of what it did, and peers to compare with."""
