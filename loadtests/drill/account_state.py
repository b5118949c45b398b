"""The stored state of one account, to compare with what its clients were told."""

import asyncio
import time
from collections.abc import Collection
from typing import Any, Final
from uuid import UUID

from engine.store.sink_folder import SinkEntry
from loadtests.drill import arrivals
from loadtests.drill.reconciliation import read_statuses
from loadtests.kit.accounts import ApiAccess
from loadtests.kit.check import Check, read_account_log
from loadtests.kit.http_client import ApiAnswer, ApiClient
from loadtests.kit.service import Service

_ANSWER_S: Final = 30.0
_ON_ITS_WAY: Final = ("queued", "sending")


def client_of(service: Service, access: ApiAccess) -> ApiClient:
    """Return a client for requests of this account."""
    return ApiClient(service.base_url, access.key, timeout_s=_ANSWER_S)


async def send(api: ApiClient, access: ApiAccess, to: str, **fields: object) -> ApiAnswer:
    """Send a short message; its address is also its `X-Test-Id`."""
    body = {"from": access.sender, "to": to, "subject": "Drill", "text": "A message.\n", "headers": {"X-Test-Id": to}}
    return await api.call("POST", "/v1/emails", body | fields)


async def must_send(api: ApiClient, access: ApiAccess, to: str, **fields: object) -> str:
    """Send a short message and return its id; raises RuntimeError unless it is accepted."""
    answer = await send(api, access, to, **fields)
    if answer.status != 202:
        raise RuntimeError(f"not accepted: {answer.status} {answer.text}")
    return str(answer.json["id"])


class AccountState:
    """Reads the stored state of one account from PostgreSQL and the sink."""

    def __init__(self, service: Service, access: ApiAccess) -> None:
        self._service = service
        self._account = access.account_id

    async def statuses(self) -> dict[str, str]:
        """Return the status of each message by id."""
        async with self._service.session() as connection:
            return await read_statuses(connection, self._account)

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
        rows = await self._service.rows(
            "SELECT message_id FROM events WHERE account_id = $1 AND type = $2", self._account, kind
        )
        return [row["message_id"] for row in rows]

    async def read(self, statement: str, *values: object) -> Any:
        """Execute a statement and return its first value, if it has one; `$1` is the account id."""
        return await self._service.value(statement, self._account, *values)

    async def arrivals(self) -> dict[str, list[SinkEntry]]:
        """Return the sink's entries by recipient address."""
        return await asyncio.to_thread(arrivals.by_address, self._service.sink)

    async def check_account_log(self, accepted: int) -> list[Check]:
        """Check that the account log is intact and that events and counters match `accepted`."""
        async with self._service.session() as connection:
            ledger = await read_account_log(connection, self._account)
        return ledger.checks(accepted)
