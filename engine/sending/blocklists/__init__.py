"""Blocklists: DNS lists (RFC 5782) that name source addresses of the service or domains of its customers."""
