"""`ops bench`: what one message costs, from the HTTP request to its settled delivery, on a service of its own."""

from ops.bench.protocol import run

__all__ = ["run"]
