"""Metrics of SMTP submission. Their names begin with `waybill_relay`, after the process kind `relay`."""

from prometheus_client import Counter, Gauge

SESSIONS_OPEN = Gauge("waybill_relay_sessions_open", "SMTP sessions now open", multiprocess_mode="livesum")
SESSIONS = Counter("waybill_relay_sessions", "SMTP sessions", ["how"])  # opened, full, proxy, handshake
LOGINS = Counter("waybill_relay_logins", "AUTH commands", ["result"])  # ok, local, refused, slowed
MESSAGES = Counter("waybill_relay_messages", "Messages submitted", ["result"])  # queued, …, or the refusal's type
