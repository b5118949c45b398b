"""Inbound routes: where the mail of an address, or of all claimed addresses of a domain, goes."""
