"""Metrics of SMTP at fronts. Their names begin with `waybill_front`, after the process kind `front`."""

from prometheus_client import Counter, Gauge

SESSIONS_OPEN = Gauge("waybill_front_sessions_open", "SMTP sessions now open", ["door"], multiprocess_mode="livesum")
SESSIONS = Counter("waybill_front_sessions", "SMTP sessions", ["door", "how"])  # opened, full, proxy, handshake
MESSAGES = Counter("waybill_front_messages", "Messages passed to a cell, by its reply", ["door", "cell", "code"])
