"""Checks of the service's own listening ports: API, metrics, SMTP submission, local sink. They only read."""

import asyncio
import json
import urllib.error
import urllib.request

from engine.base.settings import FRONT, Settings, runs_everything, variable
from ops.doctor.finding import DoctorFinding, bad, describe_error, good
from ops.host import process_specs

TIMEOUT_S = 5.0
_ANSWER_LIMIT_BYTES = 1024 * 1024


async def api(settings: Settings) -> list[DoctorFinding]:
    """Check `/readyz` of the API."""
    if not {"api", FRONT} & set(settings.processes):
        return [good("api", f"not on this host, by {variable('processes')}")]
    url = f"http://{_host(settings)}:{settings.api_port}/readyz"
    try:
        status, body = await asyncio.to_thread(_get, url)
        checks = json.loads(body)["checks"]
    except Exception as error:  # noqa: BLE001 - another program may answer on the port
        mend = f"Read {settings.state}/log/api.log, and check whether another program uses port {settings.api_port}."
        return [bad("api", f"{url} gives no valid response ({describe_error(error)})", mend)]
    failed = [name for name, check in checks.items() if not check["ok"]]
    if status != 200:
        return [
            bad("api", f"not ready: {', '.join(failed)}", "Fix what these checks name; the API recovers automatically.")
        ]
    return [
        good("api", f"ready at {url.removesuffix('/readyz')}" + (f", except {', '.join(failed)}" if failed else ""))
    ]


async def metrics(settings: Settings) -> list[DoctorFinding]:
    """Check `/metrics` of the worker."""
    url = f"http://{_host(settings)}:{settings.metrics_port}/metrics"
    try:
        _, body = await asyncio.to_thread(_get, url)
        problem = None if b"waybill_" in body else "the response has no metric of Waybill"
    except Exception as error:  # noqa: BLE001 - as above
        problem = describe_error(error)
    if problem is not None:
        mend = (
            f"Read {settings.state}/log/worker.log, and check that no other program uses port {settings.metrics_port}."
        )
        return [bad("metrics", f"{url} gives no valid response ({problem})", mend)]
    return [good("metrics", f"served at {url}")]


async def submission(settings: Settings) -> list[DoctorFinding]:
    """Check that the submission port sends an SMTP greeting, unless it is switched off."""
    if "relay" not in settings.processes:
        return [good("submission", f"not on this host, by {variable('processes')}")]
    if settings.relay_workers == 0:
        return [good("submission", f"no SMTP submission: {variable('relay_workers')} is 0")]
    if process_specs.relays(settings) == 0:
        mend = f"Set {variable('tls_cert')} and {variable('tls_key')}, or {variable('relay_workers')}=0."
        return [bad("submission", "no SMTP submission: live mode needs a certificate", mend)]
    return [await _greets(settings, "submission", (settings.submission_host, settings.submission_port), "relay-1")]


async def incoming_mail(settings: Settings) -> list[DoctorFinding]:
    """Check that the port for incoming mail sends an SMTP greeting, unless it is switched off."""
    if "mx" not in settings.processes:
        return [good("incoming mail", f"not on this host, by {variable('processes')}")]
    if settings.mx_workers == 0:
        return [good("incoming mail", f"none: {variable('mx_workers')} is 0")]
    found = await _greets(settings, "incoming mail", (settings.mx_host, settings.mx_port), "mx-1")
    if settings.delivery == "live" and settings.tls_cert is None:
        mend = f"Set {variable('tls_cert')} and {variable('tls_key')}: senders that follow MTA-STS need a valid one."
        return [found, bad("certificate for incoming mail", "STARTTLS uses a self-signed certificate", mend)]
    return [found]


async def _greets(settings: Settings, name: str, address: tuple[str, int], process: str) -> DoctorFinding:
    where = f"{address[0]}:{address[1]}"
    try:
        async with asyncio.timeout(TIMEOUT_S):
            greeting = await process_specs.smtp_greeting(settings, *address)
        problem = None if greeting.startswith(b"220 ") else f"it sent {greeting[:60]!r}"
    except OSError as error:
        problem = describe_error(error)
    if problem is not None:
        return bad(name, f"{where} sends no SMTP greeting ({problem})", f"Read {settings.state}/log/{process}.log.")
    return good(name, f"answers at {where}")


async def sink(settings: Settings) -> list[DoctorFinding]:
    """Check that the local sink sends an SMTP greeting."""
    if not runs_everything(settings):
        return [good("sink", "not on this host: local mode runs a sink only where all processes run")]
    where = f"{process_specs.LOOPBACK}:{settings.sink_port}"
    try:
        async with asyncio.timeout(TIMEOUT_S):
            reader, writer = await asyncio.open_connection(process_specs.LOOPBACK, settings.sink_port)
            greeting = await reader.readline()
            writer.close()
        problem = None if greeting.startswith(b"220") else f"it sent {greeting[:60]!r}"
    except (OSError, ValueError) as error:  # ValueError: a line without end
        problem = describe_error(error)
    if problem is not None:
        return [bad("sink", f"{where} sends no SMTP greeting ({problem})", f"Read {settings.state}/log/sink.log.")]
    return [good("sink", f"answers at {where}")]


def _host(settings: Settings) -> str:
    host = {"0.0.0.0": process_specs.LOOPBACK, "::": "::1"}.get(settings.api_host, settings.api_host)  # noqa: S104 - read, not bound
    return f"[{host}]" if ":" in host else host


def _get(url: str) -> tuple[int, bytes]:
    """Return status and body of a GET request that ignores proxies from the environment."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=TIMEOUT_S) as answer:
            return answer.status, answer.read(_ANSWER_LIMIT_BYTES)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read(_ANSWER_LIMIT_BYTES)
