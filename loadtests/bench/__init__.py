"""`ops bench`: the cost of one message, from the HTTP request to the settled delivery, on a separate service."""

from loadtests.bench.alerts import run as run_alerts
from loadtests.bench.billing import run as run_billing
from loadtests.bench.broadcast import run as run_broadcast
from loadtests.bench.codes import run as run_codes
from loadtests.bench.console import run as run_console
from loadtests.bench.console_people import run as run_console_people
from loadtests.bench.contacts import run as run_contacts
from loadtests.bench.inbound import run as run_mx
from loadtests.bench.mailbox import run as run_mailbox
from loadtests.bench.people import run as run_people
from loadtests.bench.protocol import run
from loadtests.bench.readers import run as run_readers
from loadtests.bench.relay import run as run_relay
from loadtests.bench.reports import run as run_reports
from loadtests.bench.tails import run as run_tails
from loadtests.bench.unsubscribe import run as run_unsubscribe
from loadtests.bench.webhooks import run as run_webhooks

__all__ = [
    "run",
    "run_alerts",
    "run_billing",
    "run_broadcast",
    "run_codes",
    "run_console",
    "run_console_people",
    "run_contacts",
    "run_mailbox",
    "run_mx",
    "run_people",
    "run_readers",
    "run_relay",
    "run_reports",
    "run_tails",
    "run_unsubscribe",
    "run_webhooks",
]
