"""Metrics of the server for incoming mail. Their names begin with `waybill_mx`, after the process kind `mx`."""

from prometheus_client import Counter, Gauge, Histogram

SESSIONS_OPEN = Gauge("waybill_mx_sessions_open", "Incoming SMTP sessions now open", multiprocess_mode="livesum")
SESSIONS = Counter("waybill_mx_sessions", "Incoming SMTP sessions", ["how"])  # opened, full, proxy, handshake
RECIPIENTS = Counter("waybill_mx_recipients", "RCPT commands", ["result"])  # a purpose or the reason of a refusal
MESSAGES = Counter("waybill_mx_messages", "Messages after their final dot", ["result"])  # stored, or why refused
SCANS = Counter("waybill_mx_scans", "Scans of received mail", ["scanner", "result"])
HELD_BYTES = Gauge("waybill_mx_held_bytes", "Memory held for messages being received", multiprocess_mode="livesum")
SECONDS = Histogram(
    "waybill_mx_message_seconds",
    "Time from the final dot to the reply",
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120),
)


def show_scans() -> None:
    """Export 0 for failed scans at once: Prometheus' increase() misses a first failure otherwise."""
    for scanner in ("rspamd", "clamd"):
        SCANS.labels(scanner, "failed")
