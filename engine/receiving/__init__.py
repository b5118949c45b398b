"""Receiving: inbound addresses, routes and messages; reports and bounces; MTA-STS hosting and certificates."""
