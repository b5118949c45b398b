"""`ops drill codes`: look for the codes and addresses of settled verifications wherever the service keeps data.

Verifications are started, and their mail is delivered to the sink. Then codes, addresses and links are looked for in a
dump of the database, the database's own files (with dead rows and the write-ahead log), a backup, the logs, the API's
account log, and the bodies that a webhook endpoint received. Only the sink, which stands for the mailboxes, has them.
"""

import asyncio
import gzip
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Iterable, Iterator
from pathlib import Path
from typing import Final

from loadtests.drill.account_state import client_of
from loadtests.drill.catalogue import DrillOrder
from loadtests.drill.report import Check, DrillReport
from loadtests.drill.running import on_service, until_empty
from loadtests.kit.accounts import first_access
from loadtests.kit.http_client import ApiClient
from loadtests.kit.servers import WebhookEndpoint
from loadtests.kit.service import Service
from ops.host.process_specs import ROOT
from ops.local.sink_store import entries

NAME: Final = "codes"
AT_ONCE: Final = 8
_ARRIVED_S: Final = 60.0
_CODE: Final = re.compile(rb"^    ([0-9]{8})\r?$", re.MULTILINE)
_CANDIDATES: Final = re.compile(
    rb"zebra[0-9]{5}\.privat|(?<![0-9a-z])[0-9]{8}(?![0-9a-z])|(?<=/v/)[0-9a-z]{52}(?![0-9a-z])"
)
_LINK: Final = re.compile(rb"/v/([0-9a-z]{52})")
_TABLES: Final = (
    "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p')"
    " AND NOT relispartition ORDER BY relname"
)


@on_service()
async def run(service: Service, order: DrillOrder) -> DrillReport:
    """Start verifications, settle them, and look for their secrets."""
    access = first_access(service)
    async with client_of(service, access) as api, WebhookEndpoint() as hook:
        await api.call("POST", "/v1/webhooks", {"url": hook.url})
        addresses = [f"zebra{number:05d}.privat@people{number % 10}.test" for number in range(order.messages)]
        started = await _start(api, access.sender, addresses)
        await until_empty(service.database_url)
        mails = await _mails(service, addresses)
        secrets = Secrets(addresses, mails)
        await _until_posted(hook, len(mails))
        checks = await _look_everywhere(service, api, hook, secrets)
        known = sum(len(secrets.findall(mail)) >= 3 for mail in mails)
        checks.append(Check("the search finds them in the mailboxes", known == len(mails), f"{known}"))
    delivered = len(mails)
    checks.insert(0, Check("every code arrived", delivered == started == order.messages, f"{delivered}"))
    return DrillReport(
        drill=NAME, sent=order.messages, accepted=started, delivered=delivered, lost=started - delivered,
        checks=checks,
    )  # fmt: skip


async def _start(api: ApiClient, sender: str, addresses: list[str]) -> int:
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(address: str) -> int:
        body = {"to": address, "from": sender, "codeLength": 8, "link": True}
        async with gate:
            return (await api.call("POST", "/v1/verifications", body)).status

    return (await asyncio.gather(*map(one, addresses))).count(201)


async def _mails(service: Service, addresses: list[str]) -> list[bytes]:
    """Return the mails as the sink received them, once all have arrived."""
    wanted = set(addresses)
    async with asyncio.timeout(_ARRIVED_S):
        while True:
            found = [one for one in entries(service.sink) if wanted.intersection(one.recipients) and one.file]
            if len(found) >= len(addresses):
                return [(service.sink / str(one.file)).read_bytes() for one in found]
            await asyncio.sleep(0.2)


class Secrets:
    """The local parts, codes and links to look for.

    One pattern finds all candidates, and a set tells which of them are secrets: a pattern of hundreds of alternatives
    would be a hundred times slower. A code counts where neither digit nor letter adjoins it.
    """

    def __init__(self, addresses: Iterable[str], mails: Iterable[bytes]) -> None:
        self._known = {one.partition("@")[0].encode() for one in addresses}
        for mail in mails:
            self._known.update(_CODE.findall(mail)[:1], _LINK.findall(mail.replace(b"=\r\n", b"")))

    def findall(self, text: bytes) -> list[bytes]:
        """Return all secrets in a text, whatever their case."""
        return [one for one in _CANDIDATES.findall(text.lower()) if one in self._known]


async def _until_posted(hook: WebhookEndpoint, messages: int) -> None:
    """Wait until the endpoint has the `accepted`, `attempted` and `delivered` events of all messages."""
    async with asyncio.timeout(_ARRIVED_S):
        while len(hook.posts) < 3 * messages:  # noqa: ASYNC110 - the worker posts them in its own time
            await asyncio.sleep(0.2)


async def _look_everywhere(service: Service, api: ApiClient, hook: WebhookEndpoint, secrets: Secrets) -> list[Check]:
    backup = service.state.parent / "backup"
    made = await asyncio.to_thread(_back_up, service, backup)
    places: dict[str, Iterable[tuple[str, bytes]]] = {
        "a dump of the database": [row async for row in _dump(service)],
        "the files of the database, its write-ahead log and Valkey": _files(
            service.state, "pg*/**/*", "valkey/**/*", "mta/**/*"
        ),
        "a backup": _files(backup, "**/*"),
        "the logs": [*_files(service.state, "log/*"), ("up.log", service.output.read_bytes())],
        "the account log of the API": [row async for row in _events(api)],
        "the messages of the API": [row async for row in _messages(api)],
        "the bodies of webhooks": [("body", post.body) for post in hook.posts],
    }
    checks = [Check("the backup is complete", made == 0, f"exit {made}")]
    for place, texts in places.items():
        count, size, hits = await asyncio.to_thread(_search, texts, secrets)
        words = f"{len(hits)} in {count:,} texts, {size / 1e6:.1f} MB {' '.join(hits[:3])}"
        checks.append(Check(f"no code, link or address in {place}", not hits and count > 0, words))
    return checks


def _search(texts: Iterable[tuple[str, bytes]], secrets: Secrets) -> tuple[int, int, list[str]]:
    count, size, hits = 0, 0, []
    for name, text in texts:
        count, size = count + 1, size + len(text)
        hits += [f"{name}: {found[:40]!r}" for found in secrets.findall(text)]
    return count, size, hits


async def _dump(service: Service) -> AsyncIterator[tuple[str, bytes]]:
    """Yield every row of every table as text."""
    async with service.session() as connection:
        for table in await connection.fetch(_TABLES):
            name = table["relname"]
            for row in await connection.fetch(f'SELECT t::text AS text FROM "{name}" t'):  # noqa: S608 - own names
                yield name, row["text"].encode()


def _files(folder: Path, *patterns: str) -> Iterator[tuple[str, bytes]]:
    """Yield the content of files, unpacked where they are packed."""
    for path in (one for pattern in patterns for one in sorted(folder.glob(pattern)) if one.is_file()):
        content = path.read_bytes()
        yield path.name, gzip.decompress(content) if path.suffix == ".gz" else content


async def _events(api: ApiClient) -> AsyncIterator[tuple[str, bytes]]:
    after = 0
    while True:
        page = (await api.call("GET", f"/v1/events?after={after}&limit=100")).json
        if not page["data"]:
            return
        yield "events", repr(page).encode()
        after = page["data"][-1]["seq"]


async def _messages(api: ApiClient) -> AsyncIterator[tuple[str, bytes]]:
    page = (await api.call("GET", "/v1/messages?limit=100")).json
    for one in page["data"]:
        message = (await api.call("GET", f"/v1/messages/{one['id']}")).json
        yield "message", repr((one, message)).encode()


def _back_up(service: Service, folder: Path) -> int:
    words = [sys.executable, "-m", "ops", "backup", str(folder)]
    return subprocess.run(words, env=service.environ, cwd=ROOT, check=False, capture_output=True).returncode
