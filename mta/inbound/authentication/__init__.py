"""Authenticate each received message: SPF, DKIM, ARC and DMARC. `judge.authenticate` is the entry."""
