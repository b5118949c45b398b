"""`ops bench relay`: the cost of accepting a message over SMTP, beside the same message over HTTP.

The service runs without delivery. Rounds over HTTP and SMTP alternate. Only acceptance counts: from the first octet of
a message to the reply after its commit.
"""

from typing import Any, Final

from msgspec import Struct

from loadtests.bench import measure
from loadtests.bench.load import HTTP_GENERATOR, SMTP_GENERATOR, LoadProcess
from loadtests.bench.rounds import WARM_UP, Rounds, rows_of
from loadtests.bench.run import BenchResult, BenchRun
from loadtests.bench.service import BenchService, ServiceKind
from loadtests.bench.smtp_load import SmtpTarget

DOMAINS: Final = 10


class RelayBench(Struct, frozen=True, kw_only=True):
    """The options of the bench."""

    messages: int = 20_000
    connections: int = 64
    runs: int = 1
    lock_step: bool = False  # wait for each reply
    each: int = 0  # messages per session; 0: no limit
    profile: bool = False

    async def measure(self, run: BenchRun) -> BenchResult:
        """Send rounds over both ways and compare them."""
        sessions = {"relay_sessions_each": self.connections + 10, "relay_session_s": 7_200.0}
        async with run.service(sessions, ServiceKind(delivering=False)) as service:
            logs, pids = service.settings.state / "log", service.pids()
            http, smtp = service.target(connections=self.connections, domains=DOMAINS), self._submission(service)
            async with (
                LoadProcess(HTTP_GENERATOR, http, logs / "generator.log") as api,
                LoadProcess(SMTP_GENERATOR, smtp, logs / "smtp-generator.log") as relay,
            ):
                rounds = Rounds(run, service, {"api": api, "relay": relay})
                profiled = {"api": measure.tree_of(pids["api"])[-1], "relay": pids["relay-1"]}
                found = await rounds.measure(self.messages, self.runs, profiled)
            rows = await service.pool.fetch("SELECT source, count(*) FROM messages GROUP BY source ORDER BY source")
        stored = {row["source"]: row["count"] for row in rows}
        expected = self.messages * self.runs + WARM_UP
        result: dict[str, Any] = {
            "mode": "relay", "messages": self.messages, "connections": self.connections,
            "pipelined": not self.lock_step, "messages_per_session": self.each or None, **found, "stored": stored,
            "checked": stored == {"api": expected, "smtp": expected},
        }  # fmt: skip
        return BenchResult(result, _rows(result))

    def _submission(self, service: BenchService) -> SmtpTarget:
        return service.smtp_target(
            domains=DOMAINS, connections=self.connections, pipelined=not self.lock_step, each=self.each
        )


def _rows(result: dict[str, Any]) -> list[tuple[str, ...]]:
    signature_ms = result["signature_ms"]
    api, relay = (rows_of(result[name], signature_ms) for name in ("api", "relay"))
    table = [(title, over_http, over_smtp) for (title, over_http), (_, over_smtp) in zip(api, relay, strict=True)]
    last = f"signature {signature_ms} ms; stored {result['stored']}; checked: {result['checked']}"
    return [("", "POST /v1/emails", "SMTP"), *table, (last,)]
