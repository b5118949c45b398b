"""`ops bench`: the cost of a message, from the HTTP request to the settled delivery. Each run has a fresh service."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from engine.store.database_errors import DatabaseUnavailable
from loadtests.bench import bystander as bystander_load
from loadtests.bench import figures
from loadtests.bench.bystander import Bystander
from loadtests.bench.load import HTTP_GENERATOR, SMTP_GENERATOR, GeneratorFailed, LoadProcess
from loadtests.bench.measure import SERVER_ROLES
from loadtests.bench.measured_run import MeasuredRun, SendOptions, copy_logs
from loadtests.bench.report import Row
from loadtests.bench.run import BenchResult, BenchRun
from loadtests.bench.run_control import BenchFailed
from loadtests.bench.service import BenchService, ServiceKind, make_access
from loadtests.bench.yardstick import Yardstick
from loadtests.kit.check import Check

KEY_FIGURES: Final = (
    "accepted_per_s", "delivered_per_s", "server_cpu_ms_per_message", "signature_ms", "cost_in_signatures",
)  # fmt: skip


class SendBench(SendOptions, frozen=True, kw_only=True):
    """The bench with its options."""

    async def measure(self, run: BenchRun) -> BenchResult:
        """Measure `runs` times; return the medians, or the first result that failed its check."""
        yardstick = Yardstick()
        results = []
        for number in range(1, self.runs + 1):
            if self.runs > 1:
                run.say(f"Run {number} of {self.runs}")
            result = await self.measure_once(run, yardstick)
            if not result["checked"]:
                return BenchResult(result, failure(result))
            results.append(result)
        found: dict[str, Any] = figures.medians(results)
        if self.runs > 1:
            found["runs"] = [{name: one[name] for name in KEY_FIGURES} for one in results]
        return BenchResult(
            found, [*_speed(found), (), *roles(found), *_paced(found), (), *_latencies(found), (), *_rest(found)]
        )

    async def measure_once(self, run: BenchRun, yardstick: Yardstick) -> dict[str, Any]:
        """Measure once on a fresh service."""
        kind = ServiceKind(delivering=self.queued_first is None, tls=self.tls, rsa=self.rsa)
        async with (
            run.service(self._limits(run), kind) as service,
            self._generator(service) as generator,
            self._bystander(service) as bystander,
        ):
            try:
                return await MeasuredRun(self, service, generator, yardstick, run, bystander).run()
            except (BenchFailed, GeneratorFailed, DatabaseUnavailable) as error:
                raise BenchFailed(f"{str(error) or type(error).__name__}{copy_logs(service)}") from error

    def _limits(self, run: BenchRun) -> dict[str, Any]:
        """Return settings that let all connections send large messages at once."""
        sessions = {"relay_sessions_each": self.connections + 10, "relay_session_s": 7_200.0}
        memory = 5 * self.connections * self.size  # a key may hold less than half of it
        return sessions | {"max_inflight_bytes": max(run.given.max_inflight_bytes, memory)}

    def _generator(self, service: BenchService) -> LoadProcess:
        log = service.settings.state / "log" / "generator.log"
        if self.door == "smtp":
            target = service.smtp_target(
                domains=self.recipient_domains, connections=self.connections, attached=self.size
            )
            return LoadProcess(SMTP_GENERATOR, target, log)
        return LoadProcess(
            HTTP_GENERATOR,
            service.target(
                connections=self.connections, domains=self.recipient_domains, batch=self.per_request,
                raw=self.door == "raw", attached=self.size,
            ),
            log,
        )  # fmt: skip

    @asynccontextmanager
    async def _bystander(self, service: BenchService) -> AsyncIterator[Bystander | None]:
        """Run the load process of another account, if wanted."""
        if self.bystander is None:
            yield None
            return
        access = await make_access(service.settings, service.pool, bystander_load.DOMAIN, local=False)
        target = service.target(connections=bystander_load.CONNECTIONS, domains=self.recipient_domains, access=access)
        async with LoadProcess(HTTP_GENERATOR, target, service.settings.state / "log" / "bystander.log") as load:
            yield Bystander(load, self.bystander)


def failure(result: Mapping[str, Any]) -> list[Row]:
    """Return the rows of a run whose check failed."""
    checks = [(Check(**one).shown,) for one in result["checks"]]
    return [("The run failed its check; it says nothing about speed.",), *checks, (result["logs"].strip(),)]


def _speed(result: Mapping[str, Any]) -> list[Row]:
    title = f"{result['messages']:,} messages, {result['domains']:,} domains, {result['mode']}"
    if result["attached_bytes"]:
        title += f", {result['attached_bytes']:,} bytes attached, by {result['door']}"
    if result["stored"]:
        title += f", {result['stored']:,} stored before"
    queueing = result.get("queueing")
    accepted = queueing["accepted_per_s"] if queueing else result["accepted_per_s"]
    rows: list[Row] = [
        (f"{title}; {result['api_workers']} api, {result['mta_workers']} mta",),
        ("accepted", f"{accepted:,.0f}", "a second"),
        ("delivered and settled", f"{result['delivered_per_s']:,.0f}", "a second"),
        ("server CPU", f"{result['server_cpu_ms_per_message']:.3f}", "ms a message"),
        ("RSA-2048 signature", f"{result['signature_ms']:.3f}", "ms"),
        ("cost in signatures", f"{result['cost_in_signatures']:.2f}", ""),
        (
            "WAL",
            f"{result['wal_bytes_per_message']:,}",
            f"bytes a message, {result['wal_per_content']:.2f} x its content",
        ),
    ]
    if queueing:
        rows.insert(4, ("server CPU of queueing", f"{queueing['server_cpu_ms_per_message']:.3f}", "ms a message"))
    for number, one in enumerate(result.get("runs", []), 1):
        rate, cpu_ms, cost = one["delivered_per_s"], one["server_cpu_ms_per_message"], one["cost_in_signatures"]
        rows.append((f"  run {number}: {rate:,.0f} a second, {cpu_ms:.3f} ms, {cost:.2f} signatures",))
    return rows


def roles(result: Mapping[str, Any]) -> list[Row]:
    """Return the table of CPU, context switches and memory by process."""
    head = (
        "process",
        "CPU ms",
        "signatures",
        "switches",
        f"MiB ({result['memory_kind']})",
        "RSS of one before",
        "at most",
    )
    rows = [
        (
            *_usage(role, cpu_ms, result, result),
            f"{result['rss_mb_by_role'].get(role, 0):.0f}",
            f"{result['rest_rss_mb_by_role'].get(role, 0):.0f}",
            f"{result['peak_rss_mb_by_role'].get(role, 0):.0f}",
        )
        for role, cpu_ms in result["cpu_ms_by_role"].items()
    ]
    return [head, *rows]


def _usage(role: str, cpu_ms: float, used: Mapping[str, Any], result: Mapping[str, Any]) -> tuple[str, str, str, str]:
    return (
        role if role in SERVER_ROLES else f"({role})",
        f"{cpu_ms:.4f}",
        f"{cpu_ms / result['signature_ms']:.2f}",
        f"{used['context_switches_by_role'][role]:.2f}",
    )


def _paced(result: Mapping[str, Any]) -> list[Row]:
    """Return the cost of a message in the paced run; the yardstick is that of the counted one."""
    used = result.get("paced_usage")
    if used is None:
        return []
    cpu_ms = used["server_cpu_ms_per_message"]
    return [
        (),
        (f"at {result['paced_per_s']:,.0f} a second", "CPU ms", "signatures", "switches"),
        *(_usage(role, role_ms, used, result) for role, role_ms in used["cpu_ms_by_role"].items()),
        ("server", f"{cpu_ms:.4f}", f"{cpu_ms / result['signature_ms']:.2f}", ""),
        ("times the cost at full rate", f"{cpu_ms / result['server_cpu_ms_per_message']:.2f}", "", ""),
        *((line,) for line in _commits(used)),
    ]


def _latencies(result: Mapping[str, Any]) -> list[Row]:
    full = result["at_full_rate"]
    queued = " while delivery waited" if result["mode"] == "drain" else ", at full rate"
    found = [(f"accept{queued}", full["accept_ms"]), ("202 to remote 250, at full rate", full["deliver_ms"])]
    if result["paced_per_s"] is not None:
        at = f"at {result['paced_per_s']:,.0f} a second"
        found += [(f"accept, {at}", result["accept_ms"]), (f"202 to remote 250, {at}", result["deliver_ms"])]
    if (other := result["bystander"]) is not None:
        for phase in ("alone", "beside"):
            title = f"bystander at {other['per_s']:g} a second, {phase}"
            found += [(f"{title}: accept", other[phase]["accept_ms"]), (f"{title}: to 250", other[phase]["arrive_ms"])]
    rows = [(title, *(f"{ms:,.1f}" for ms in values.values())) for title, values in found if values is not None]
    return [("milliseconds", "p50", "p95", "p99"), *rows]


def _rest(result: Mapping[str, Any]) -> list[Row]:
    lines = _commits(result)
    if (lag := result["settle_lag"]) is not None:
        lines.append(
            f"Final reply to commit, slowest of each half second: {lag['slowest_mean_ms']:.1f} ms in the mean,"
            f" {lag['within_50_ms']:.0%} within 50 ms"
        )
    found = ", ".join(f"{count:,} {how}" for how, count in result["smtp_connections"].items())
    machine = result["machine"]
    lines += [
        f"SMTP connections: {found or 'none'}{' with TLS' if result['tls'] else ''}",
        f"{machine['cpu']}, {machine['cores']} cores, {machine['filesystem']} syncing in {machine['sync_us']:.0f} µs",
        f"Python {machine['python']} ({machine['python_build']})",
        f"others used {result['cores_used_by_others']:.2f} cores meanwhile",
        "Checked: " + "; ".join(one["what"] for one in result["checks"]),
    ]
    return [(line,) for line in lines]


def _commits(used: Mapping[str, Any]) -> list[str]:
    return [
        f"{flow}: {one['flushes']:,} commits of {one['items']:.1f} in the mean, {one['ms']:.2f} ms each"
        for flow, one in used["flush"].items()
    ]
