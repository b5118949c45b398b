"""`ops bench`: what one message costs, from the HTTP request to its settled delivery, on a service of its own."""

from ops.bench.people import run as run_people
from ops.bench.protocol import run
from ops.bench.readers import run as run_readers
from ops.bench.relay import run as run_relay
from ops.bench.tails import run as run_tails
from ops.bench.webhooks import run as run_webhooks

__all__ = ["run", "run_people", "run_readers", "run_relay", "run_tails", "run_webhooks"]
