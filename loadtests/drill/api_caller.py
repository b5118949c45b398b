"""Plain API requests for drills that check each answer, and the stored state to compare the answers with."""

import asyncio
import time
from collections.abc import Collection
from types import TracebackType
from typing import Any, Final, Self
from uuid import UUID

import aiohttp
import asyncpg
import msgspec

from engine.base import ids
from engine.store.sink_folder import SinkEntry
from loadtests.drill.fresh_service import account_id, database_url
from loadtests.drill.reconciliation import read_account_log
from loadtests.drill.report import Check
from loadtests.drill.send_client import ApiAccess
from loadtests.drill.service import Service
from ops.local.sink_store import entries

_ANSWER_S: Final = 30.0
_CONNECTIONS: Final = 100
_ON_ITS_WAY: Final = ("queued", "sending")


class ApiCaller:
    """Sends requests with one API key. An asynchronous context manager."""

    def __init__(self, service: Service, access: ApiAccess) -> None:
        self.access = access
        self._base = service.base_url
        self._headers = {"Authorization": f"Bearer {access.key}"}

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            headers=self._headers, connector=aiohttp.TCPConnector(limit=_CONNECTIONS), trust_env=False,
            timeout=aiohttp.ClientTimeout(total=_ANSWER_S), cookie_jar=aiohttp.DummyCookieJar(),
        )  # fmt: skip
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.close()

    async def call(self, method: str, path: str, body: object = None) -> tuple[int, dict[str, Any]]:
        """Send a request; return the status and the JSON body."""
        async with self._session.request(method, self._base + path, json=body) as answer:
            content = await answer.read()
            return answer.status, msgspec.json.decode(content) if content else {}

    async def send(self, to: str, **fields: object) -> tuple[int, dict[str, Any]]:
        """Send a short message; its address is also its `X-Test-Id`."""
        body = {
            "from": self.access.sender, "to": to, "subject": "Race", "text": "A message of a race.\n",
            "headers": {"X-Test-Id": to},
        }  # fmt: skip
        return await self.call("POST", "/v1/emails", body | fields)


class AccountState:
    """Reads the stored state of one account from PostgreSQL and the sink."""

    def __init__(self, service: Service, access: ApiAccess) -> None:
        self._service = service
        self._account = account_id(access)

    async def statuses(self) -> dict[str, str]:
        """Return the status of each message by id."""
        connection = await self._open()
        try:
            rows = await connection.fetch("SELECT id, status FROM messages WHERE account_id = $1", self._account)
        finally:
            await connection.close()
        return {ids.format_id(ids.Kind.MESSAGE, row["id"]): row["status"] for row in rows}

    async def until_settled(self, messages: Collection[str], timeout_s: float) -> None:
        """Wait until none of these messages is queued or being sent, at most `timeout_s`."""
        ends = time.monotonic() + timeout_s
        while time.monotonic() < ends:
            statuses = await self.statuses()
            if not any(statuses.get(message) in _ON_ITS_WAY for message in messages):
                return
            await asyncio.sleep(0.25)

    async def events(self, kind: str) -> list[UUID]:
        """Return the message ids of the account's events of this type."""
        connection = await self._open()
        try:
            rows = await connection.fetch(
                "SELECT message_id FROM events WHERE account_id = $1 AND type = $2", self._account, kind
            )
        finally:
            await connection.close()
        return [row["message_id"] for row in rows]

    async def execute(self, statement: str, *values: object) -> None:
        """Execute a statement; `$1` is the account id."""
        connection = await self._open()
        try:
            await connection.execute(statement, self._account, *values)
        finally:
            await connection.close()

    async def read(self, statement: str, *values: object) -> Any:
        """Return one value from the database; `$1` is the account id."""
        connection = await self._open()
        try:
            return await connection.fetchval(statement, self._account, *values)
        finally:
            await connection.close()

    async def arrivals(self) -> dict[str, list[SinkEntry]]:
        """Return the sink's entries by recipient address."""
        found: dict[str, list[SinkEntry]] = {}
        for entry in await asyncio.to_thread(lambda: list(entries(self._service.sink))):
            for address in entry.recipients:
                found.setdefault(address, []).append(entry)
        return found

    async def check_account_log(self, accepted: int) -> list[Check]:
        """Check that the account log is intact and that events and counters match `accepted`."""
        connection = await self._open()
        try:
            ledger = await read_account_log(connection, self._account)
        finally:
            await connection.close()
        whole = ledger.intact and not ledger.accepted_twice
        counted = accepted == ledger.accepted and ledger.accepted_today == ledger.sent_today
        counts = f"{accepted} accepted, {ledger.accepted} events, {ledger.sent_today} counted"
        return [
            Check("the account log is intact", whole, f"{ledger.events} events"),
            Check("events and the daily counter agree", counted, counts),
        ]

    async def _open(self) -> asyncpg.Connection:
        return await asyncpg.connect(database_url(self._service), timeout=10)
