"""What the doctor asks of the service's own doors: API, metrics, the local sink. Only reads."""

import asyncio
import json
import urllib.error
import urllib.request

from engine.base.settings import PROCESSES, Settings, variable
from ops import process_specs
from ops.doctor.finding import DoctorFinding, bad, describe_error, good

TIMEOUT_S = 5.0
_ANSWER_LIMIT_BYTES = 1024 * 1024


async def api(settings: Settings) -> list[DoctorFinding]:
    """`/readyz` of the API."""
    if "api" not in settings.processes:
        return [good("api", f"on other hosts: {variable('processes')} leaves it out here")]
    url = f"http://{_host(settings)}:{settings.api_port}/readyz"
    try:
        status, body = await asyncio.to_thread(_get, url)
        checks = json.loads(body)["checks"]
    except Exception as error:  # noqa: BLE001 - a stranger may answer on the port
        mend = f"See {settings.state}/log/api.log, and whether another program has port {settings.api_port}."
        return [bad("api", f"{url} does not answer as it should ({describe_error(error)})", mend)]
    failed = [name for name, check in checks.items() if not check["ok"]]
    if status != 200:
        return [
            bad("api", f"not ready: {', '.join(failed)}", "Mend what these checks name; the API recovers by itself.")
        ]
    return [
        good("api", f"ready at {url.removesuffix('/readyz')}" + (f", but for {', '.join(failed)}" if failed else ""))
    ]


async def metrics(settings: Settings) -> list[DoctorFinding]:
    """`/metrics` of the worker."""
    url = f"http://{_host(settings)}:{settings.metrics_port}/metrics"
    try:
        _, body = await asyncio.to_thread(_get, url)
        problem = None if b"waybill_" in body else "no figure of Waybill's is among the answer"
    except Exception as error:  # noqa: BLE001 - as above
        problem = describe_error(error)
    if problem is not None:
        mend = f"See {settings.state}/log/worker.log, and whether another program has port {settings.metrics_port}."
        return [bad("metrics", f"{url} does not answer as it should ({problem})", mend)]
    return [good("metrics", f"served at {url}")]


async def submission(settings: Settings) -> list[DoctorFinding]:
    """The SMTP relay greets, or is not wanted."""
    if "relay" not in settings.processes:
        return [good("submission", f"on other hosts: {variable('processes')} leaves it out here")]
    if settings.relay_workers == 0:
        return [good("submission", f"no SMTP submission: {variable('relay_workers')} is 0")]
    if process_specs.relays(settings) == 0:
        mend = f"Set {variable('tls_cert')} and {variable('tls_key')}, or {variable('relay_workers')}=0."
        return [bad("submission", "no SMTP submission: live mode has no certificate to show", mend)]
    where = f"{settings.submission_host}:{settings.submission_port}"
    try:
        async with asyncio.timeout(TIMEOUT_S):
            greeting = await process_specs.greeting_of_relay(settings)
        problem = None if greeting.startswith(b"220 ") else f"it said {greeting[:60]!r}"
    except OSError as error:
        problem = describe_error(error)
    if problem is not None:
        return [bad("submission", f"{where} does not greet ({problem})", f"See {settings.state}/log/relay-1.log.")]
    return [good("submission", f"greets at {where}")]


async def sink(settings: Settings) -> list[DoctorFinding]:
    """The local SMTP server greets."""
    if set(settings.processes) != set(PROCESSES):
        return [good("sink", "on another host: local mode brings one where everything runs")]
    where = f"{process_specs.LOOPBACK}:{settings.sink_port}"
    try:
        async with asyncio.timeout(TIMEOUT_S):
            reader, writer = await asyncio.open_connection(process_specs.LOOPBACK, settings.sink_port)
            greeting = await reader.readline()
            writer.close()
        problem = None if greeting.startswith(b"220") else f"it said {greeting[:60]!r}"
    except (OSError, ValueError) as error:  # ValueError: a line without end
        problem = describe_error(error)
    if problem is not None:
        return [bad("sink", f"{where} does not greet ({problem})", f"See {settings.state}/log/sink.log.")]
    return [good("sink", f"greets at {where}")]


def _host(settings: Settings) -> str:
    host = {"0.0.0.0": process_specs.LOOPBACK, "::": "::1"}.get(settings.api_host, settings.api_host)  # noqa: S104 - read, not bound
    return f"[{host}]" if ":" in host else host


def _get(url: str) -> tuple[int, bytes]:
    """Status and body of a GET, past any proxy of the environment."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=TIMEOUT_S) as answer:
            return answer.status, answer.read(_ANSWER_LIMIT_BYTES)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read(_ANSWER_LIMIT_BYTES)
