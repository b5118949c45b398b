"""Define the Prometheus metrics of all processes. The worker serves their sum.

With PROMETHEUS_MULTIPROC_DIR set (by the supervisor) each process writes its values to files there. In this mode an
increment costs 3-7 µs and an observation 7-12 µs, so events of every message are counted in memory (`TALLY`) and
written once a second, and stage times are those of every sixteenth transaction.
"""

from collections import defaultdict

from prometheus_client import Counter, Gauge, Histogram

SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128)

REQUESTS = Counter("waybill_http_requests", "Requests answered", ["operation", "status"])
REQUESTS_OPEN = Gauge(
    "waybill_http_requests_open", "Requests being answered, open tails among them", multiprocess_mode="livesum"
)
FRONT_REQUESTS = Counter("waybill_front_requests", "Requests passed to a cell by a front", ["cell", "status"])
ACCEPTED = Counter("waybill_accepted", "Messages accepted")
CODES_SENT = Counter("waybill_verification_codes", "One-time codes accepted for sending", ["sending"])
CODES_CHECKED = Counter("waybill_verification_checks", "Guessed one-time codes, and confirmations by link", ["result"])
ALERTS_FIRED = Counter("waybill_alerts_fired", "Alerts of the accounts that fired", ["kind"])
ALERTS_ENDED = Counter("waybill_alerts_ended", "Alerts of the accounts that ended", ["kind"])
ALERT_NOTICES = Counter("waybill_alert_notices", "Notices of alerts that went out", ["kind"])
REFUSED = Counter("waybill_refused", "Requests refused", ["type"])
FLUSH_SIZE = Histogram("waybill_flush_items", "Items per group commit", ["flow"], buckets=_SIZES)
FLUSH_SECONDS = Histogram("waybill_flush_seconds", "Time of a group commit", ["flow"], buckets=SECONDS)
ATTEMPTS = Counter("waybill_attempts", "Recipients attempted", ["verdict", "scope"])
DELIVERY_WAIT_SECONDS = Counter(
    "waybill_delivery_wait_seconds", "Time of deliveries up to an outcome, by its cause", ["cause"]
)
CONNECTIONS = Counter("waybill_smtp_connections", "Connections to mail servers", ["how"])
CONNECTIONS_OPEN = Gauge(
    "waybill_smtp_connections_open", "Open connections to mail servers", multiprocess_mode="livesum"
)
CONNECTIONS_OPENING = Gauge(
    "waybill_smtp_connections_opening", "Connections to mail servers being opened", multiprocess_mode="livesum"
)
SLOTS_WAITING = Gauge(
    "waybill_slots_waiting",
    "Connections and look-ups that wait for a slot",
    ["kind", "lane"],
    multiprocess_mode="livesum",
)
SLOT_WAIT_SECONDS = Histogram(
    "waybill_slot_wait_seconds",
    "Time of waits for a slot, without immediate grants",
    ["kind", "lane"],
    buckets=SECONDS,
)
STAGE_SECONDS = Histogram(
    "waybill_smtp_stage_seconds", "Time per SMTP stage, of every 16th transaction", ["stage"], buckets=SECONDS
)
SETTLE_SECONDS = Histogram(
    "waybill_settle_seconds",
    "Time from the final reply to the commit of its outcome, longest of each half second",
    buckets=SECONDS,
)
DNS_QUESTIONS = Counter("waybill_dns_questions", "Questions sent to DNS servers")
IN_HAND = Gauge("waybill_deliveries_in_hand", "Deliveries held in memory", multiprocess_mode="livesum")
SHARDS_OWNED = Gauge("waybill_shards_owned", "Shards owned by the process", multiprocess_mode="livesum")
HINTS_LOST = Counter("waybill_hints_lost", "Messages without a hint because Redis was unavailable")
REDIS_AWAY = Gauge("waybill_redis_away", "Processes that can't reach Redis", multiprocess_mode="livesum")
LAGGING_READS = Counter("waybill_lagging_reads", "Reads that may lag, by what became of them", ["outcome"])
REPLICA_LAG = Gauge(
    "waybill_replica_lag_seconds",
    "Age of the newest data that a replica is known to show",
    ["replica"],
    multiprocess_mode="livemax",
)
QUEUE_ROWS = Gauge("waybill_queue_rows", "Pending deliveries", ["shard"], multiprocess_mode="mostrecent")
QUEUE_AGE = Gauge(
    "waybill_queue_overdue_seconds",
    "Time since the due time of the oldest due row",
    ["shard"],
    multiprocess_mode="mostrecent",
)
TRACE_SPANS = Counter("waybill_trace_spans", "Spans of traces, by their end", ["end"])
WEBHOOK_POSTS = Counter("waybill_webhook_posts", "Attempts to post an event to an endpoint", ["result"])
RECEIVER_STATE = Gauge(
    "waybill_receiver_state",
    "1 for the present state of a provider of mailboxes, 0 for the others",
    ["provider", "state"],
    multiprocess_mode="mostrecent",
)
WEBHOOKS_IN_FLIGHT = Gauge("waybill_webhook_posts_in_flight", "Webhook posts in flight", multiprocess_mode="livesum")
WEBHOOKS_DUE = Gauge("waybill_webhook_endpoints_due", "Endpoints with posts due", multiprocess_mode="mostrecent")
WEBHOOK_AGE = Gauge(
    "waybill_webhook_overdue_seconds", "Time since the due time of the oldest due post", multiprocess_mode="mostrecent"
)
PARTITIONS_UNTIL = Gauge(
    "waybill_partitions_until_timestamp_seconds",  # a count of weeks would not fall with a dead worker
    "End of the last week up to which every week has partitions",
    multiprocess_mode="mostrecent",
)


class Tally:
    """The counts of one process since they were last written; lives as long as the process."""

    def __init__(self) -> None:
        self._counts: dict[tuple[Counter, tuple[str, ...]], float] = defaultdict(float)

    def add(self, counter: Counter, *labels: str, by: float = 1.0) -> None:
        """Increment a counter."""
        self._counts[counter, labels] += by

    def write(self) -> None:
        """Add the counts to the Prometheus counters; called once a second and at exit."""
        counts, self._counts = self._counts, defaultdict(float)
        for (counter, labels), count in counts.items():
            (counter.labels(*labels) if labels else counter).inc(count)


TALLY = Tally()


def flushed(flow: str, items: int, seconds: float) -> None:
    """Record one group commit."""
    FLUSH_SIZE.labels(flow).observe(items)
    FLUSH_SECONDS.labels(flow).observe(seconds)
