"""The complete service as an operator runs it: `python -m ops up` in a folder of its own, its commands, its sink."""

import asyncio
import contextlib
import json
import os
import signal
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from email import message_from_bytes, policy
from email.message import EmailMessage
from itertools import count
from pathlib import Path
from typing import IO, Any

import dkim
import dns.message
import dns.query
import dns.rdatatype
from dns.rdtypes.ANY.TXT import TXT
from msgspec import Struct

from engine.store.sink_folder import SinkEntry
from loadtests.kit.accounts import ApiAccess
from loadtests.kit.accounts import new_access as kit_access
from loadtests.kit.service import Service, ServicePart, temporary
from ops.local.sink_store import entries
from tests.harness import fork_server, shared_memory
from tests.harness.api import Answer, Api
from tests.harness.patience import PATIENCE_S

QUICK = {"LEASE_S": "2", "FRESH_DUE_S": "1", "RETRY_LADDER_S": "1,1,1", "REQUEST_RATE": "100000"}
COMMAND_S = 90.0
_accounts = count(1)


class Ended(Struct, frozen=True):
    """The exit code and output of a command."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Its output as one JSON value."""
        return json.loads(self.out)


@contextlib.contextmanager
def running(more: Mapping[str, str] | None = None) -> Iterator[Service]:
    """Start a service with short leases and retries, and remove all of it at the end. Main thread only."""
    with temporary(QUICK | dict(more or {})) as service:
        yield service
        servers = service.pids(ServicePart.POSTGRES)
        segments = frozenset[str]().union(*(shared_memory.held_by(pid) for pid in servers))
    assert shared_memory.left(segments) == set()


async def new_access(service: Service) -> ApiAccess:
    """An account of its own on a running service, with a key and a verified domain."""
    return await kit_access(service.settings, f"journey{next(_accounts)}", daily_cap=100_000)


def command(service: Service, *words: str, **changes: str | None) -> Ended:
    """Run `ops WORDS` beside the service; `changes` are WAYBILL_ settings without the prefix, None removes one."""
    environ = dict(service.environ)
    for name, value in changes.items():
        environ.pop(f"WAYBILL_{name}", None)
        if value is not None:
            environ[f"WAYBILL_{name}"] = value
    return run_ops(environ, *words)


def run_ops(environ: Mapping[str, str], *words: str) -> Ended:
    """Run `ops WORDS` with these environment variables."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = fork_server.start("ops", words, environ=environ, stdout=out, stderr=err)
        try:
            status = process.wait(COMMAND_S)
        finally:
            process.kill()
        return Ended(status, *(_text(file) for file in (out, err)))


@contextlib.contextmanager
def following(service: Service, *words: str) -> Iterator[Callable[[], list[dict[str, Any]]]]:
    """Run `ops WORDS --json`, which prints until it is interrupted; yield a function that returns its lines so far."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = fork_server.start("ops", [*words, "--json"], environ=service.environ, stdout=out, stderr=err)

        def printed() -> list[dict[str, Any]]:
            assert process.poll() is None, _text(err)
            whole = os.pread(out.fileno(), os.fstat(out.fileno()).st_size, 0).rpartition(b"\n")[0]
            return [json.loads(line) for line in whole.splitlines()]

        try:
            yield printed
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(COMMAND_S)


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode()


async def send(api: Api, access: ApiAccess, *to: str, **fields: object) -> str:
    """A message that is accepted; its id."""
    answer = await try_send(api, access, *to, **fields)
    assert answer.status == 202, answer.body
    return str(answer.json["id"])


async def try_send(api: Api, access: ApiAccess, *to: str, **fields: object) -> Answer:
    """`POST /v1/emails`."""
    body = {"from": access.sender, "to": list(to), "subject": "Hello", "text": "Hello!"} | fields
    return await api.post("/v1/emails", access.key, body)


async def message(api: Api, access: ApiAccess, id: str) -> dict[str, Any]:  # noqa: A002 - the resource's own word
    """`GET /v1/messages/{id}`."""
    answer = await api.get(f"/v1/messages/{id}", access.key)
    assert answer.status == 200, answer.body
    return dict(answer.json)


async def until_status(
    api: Api,
    access: ApiAccess,
    id: str,  # noqa: A002
    *wanted: str,
    timeout_s: float = PATIENCE_S,
) -> dict[str, Any]:
    """The message once its status is one of these."""
    found: dict[str, Any] = {}

    async def reached() -> bool:
        nonlocal found
        found = await message(api, access, id)
        return found["status"] in wanted

    await until(reached, timeout_s, lambda: f"{found}")
    return found


async def until(
    true: Callable[[], Awaitable[bool]], timeout_s: float = PATIENCE_S, why: Callable[[], str] = str
) -> None:
    """Ask four times a second until it is so."""

    ends = time.monotonic() + timeout_s
    while not await true():
        assert time.monotonic() < ends, f"not so after {timeout_s} s: {why()}"
        await asyncio.sleep(0.25)


def steps(found: Mapping[str, Any]) -> list[str]:
    """The types on a message's waybill."""
    return [event["type"] for event in found["waybill"]]


def arrived(service: Service, address: str) -> list[SinkEntry]:
    """Return the mail in the sink for this address."""
    return [entry for entry in entries(service.sink) if address in entry.recipients]


def octets(service: Service, entry: SinkEntry) -> bytes:
    """The message as it came over the wire."""
    assert entry.file is not None
    return (service.sink / entry.file).read_bytes()


def parsed(content: bytes) -> EmailMessage:
    """Return the mail parsed by the standard library."""
    found = message_from_bytes(content, policy=policy.default)
    assert isinstance(found, EmailMessage)
    return found


def verifies(content: bytes, service: Service) -> bool:
    """Return True if dkimpy verifies the first signature (RSA) with the key from the service's DNS responder."""

    def look_up(name: bytes | str, timeout: float = 5) -> bytes | None:
        text = name.decode() if isinstance(name, bytes) else name
        query = dns.message.make_query(text, "TXT")
        answer = dns.query.udp(query, "127.0.0.1", timeout=timeout, port=service.dns_port)
        for rrset in answer.answer:
            for rdata in rrset:
                if isinstance(rdata, TXT):
                    return b"".join(rdata.strings)
        return None

    try:
        return bool(dkim.DKIM(content).verify(idx=0, dnsfunc=look_up))
    except dkim.ValidationError:
        return False


def gone(pid: int) -> bool:
    """Return True if the process has ended, reaped or not."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    return True


def stopped(pid: int, number: int) -> None:
    """Send a signal to a process of the service that may have ended."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
