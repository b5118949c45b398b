"""What the relay counts."""

from prometheus_client import Counter, Gauge

SESSIONS_OPEN = Gauge("waybill_relay_sessions_open", "SMTP sessions now open", multiprocess_mode="livesum")
SESSIONS = Counter("waybill_relay_sessions", "SMTP sessions", ["how"])  # opened, full, proxy, handshake
LOGINS = Counter("waybill_relay_logins", "AUTH commands", ["result"])  # ok, refused, slowed
MESSAGES = Counter("waybill_relay_messages", "Messages submitted", ["result"])  # queued, …, or the refusal's type
