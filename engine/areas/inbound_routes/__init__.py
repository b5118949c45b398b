"""Inbound routes: what happens with mail to a claimed address or to the addresses of a domain."""
