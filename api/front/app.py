"""The ASGI application of a front. Granian calls the factory `create_app`.

A front keeps no state beyond its caches, so there may be any number of them. It trusts nothing that a client says about
cells: what it forwards is checked by the cell like any other request.
"""

import asyncio
import os
from collections.abc import Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import Any, Final

import aiohttp
import msgspec
import structlog

from api.front import exchange
from api.front.exchange import CellDown, Receive, RequestBody, Send
from api.front.routing import MAX_BODY, Address, Head, Named, RequestRouter
from api.http import dispatch, forwarded, framing, graceful_shutdown, paths, visiting_operator
from api.http.cookies import http_only
from engine.base import logs, scheduling
from engine.base.errors import ErrorType, Refusal
from engine.base.netaddr import network_of
from engine.base.settings import Settings, load
from engine.cells.claims import HINT_COOKIE
from engine.cells.locator import Location, Locator, TooManyUnknown, Unlocated
from engine.cells.whose import Key, KeyKind
from engine.people.sessions.rules import COOKIE
from engine.store import metrics, socket_activation

RETRY_S: Final = 2
HINT_S: Final = 400 * 86_400

# A person who is new may begin here: in an open cell, unless the browser was at one before.
_BEGINS: Final = frozenset({"/v1/auth/idp/start", "/v1/auth/idp/nonce"})
# Ways to sign in that begin before the person is known. Others tell the cell only with a session: the cell of an
# address would tell strangers that it has a person.
_HINTED: Final = ("/v1/auth/idp/", "/v1/auth/passkeys/login/verify")
_log = structlog.get_logger("front")


class FrontApp:
    """Hold what a worker of a front needs: the directory that it follows, and its connections to the cells."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._docs = dispatch.errors_page(settings.public_url)
        self._router = RequestRouter(settings.pepper)

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        """Serve one ASGI connection."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            await self._serve(scope, receive, send)

    # -- the worker -------------------------------------------------------------------------------

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        logs.configure("front", self._settings.log_level, self._settings.state)
        self._http = exchange.open_session()
        assert self._settings.directory_url is not None
        self._locator = Locator(self._settings.directory_url, self._settings.pepper, self._http)
        tasks = [asyncio.create_task(self._locator.run()), asyncio.create_task(_write_metrics())]
        await self._locator.looked.wait()
        scheduling.keep_loaded()
        graceful_shutdown.install(lambda: None, min(graceful_shutdown.LINGER_S, self._settings.drain_s / 2))
        socket_activation.tell_ready()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        for task in tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        metrics.TALLY.write()
        await self._locator.close()
        await self._http.close()
        await send({"type": "lifespan.shutdown.complete"})

    # -- a request --------------------------------------------------------------------------------

    async def _serve(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        if scope["http_version"] == "1":  # Granian's name of HTTP/1.0
            scope["http_version"] = "1.0"
        body = RequestBody(scope, receive, self._settings.body_deadline_s) if _is_framed(scope) else None
        cell = ""
        try:
            framing.check(scope, self._settings.max_request_bytes)
            paths.make_routable(scope)
            if scope["path"] in ("/healthz", "/readyz"):
                await self._report(scope, send)
                return
            assert body is not None  # else `check` has refused it
            head = _head(scope)
            client = self._client(scope)
            home = await self._home_of(head, body, network_of(client))
            cell, extra = await self._chosen(head, scope, client, home.cell)
            response = await self._sent(cell, scope, body, client, extra)
            if cell == home.cell and self._may_have_left(head, home, response.status):
                response.close()
                raise _unavailable()
        except Refusal as refusal:
            metrics.TALLY.add(metrics.FRONT_REQUESTS, cell or "none", str(refusal.status))
            await framing.answer(refusal, receive, send, self._docs)
            return
        metrics.TALLY.add(metrics.FRONT_REQUESTS, cell, str(response.status))
        try:
            added = self._hint(head, cell, response)
            await exchange.answer(response, body, send, write_s=self._settings.stream_write_s, added=added)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            _log.info("response broken off", cell=cell, error=repr(error))
            raise
        finally:
            response.close()

    async def _chosen(
        self, head: Head, scope: Mapping[str, Any], client: str, home: str
    ) -> tuple[str, list[tuple[bytes, bytes]]]:
        """Return the cell that an operator has chosen, with the statement of their own; else `home`."""
        chosen = head.headers.get(visiting_operator.CELL_HEADER.lower().encode(), b"").decode("latin-1")
        if not chosen or chosen == home or not head.path.startswith(visiting_operator.PATHS):
            return home, []
        if chosen not in self._locator.cells:
            raise Refusal(
                ErrorType.NOT_FOUND,
                "No cell has the name in `X-Waybill-Cell`. List the cells with `GET /v1/operator/cells`.",
            )
        errand = visiting_operator.Errand(head.method, head.path, chosen)
        try:
            own = self._locator.cells[home]
            statement = await exchange.vouched(self._http, own, scope, client, errand, self._settings)
        except CellDown as down:
            _log.warning("operator not vouched for", cell=home, error=repr(down.__cause__))
            raise _unavailable() from None
        return chosen, [(visiting_operator.HEADER.encode(), statement)]

    async def _sent(
        self, cell: str, scope: Mapping[str, Any], body: RequestBody, client: str, extra: list[tuple[bytes, bytes]]
    ) -> aiohttp.ClientResponse:
        try:
            return await exchange.request(self._http, self._locator.cells[cell], scope, body, client, extra)
        except CellDown as down:
            self._locator.failed(cell)
            _log.warning("cell does not answer", cell=cell, sent=down.sent, error=repr(down.__cause__))
            raise _unavailable() from None

    def _may_have_left(self, head: Head, home: Location, status: int) -> bool:
        """Return True if the cell may have refused an account because it has left, which the front has not read yet."""
        if self._locator.current or home.account_id is None:
            return False
        return status == HTTPStatus.UNAUTHORIZED or (
            status == HTTPStatus.NOT_FOUND and not head.path.startswith("/v1/")  # links and pictures in mail
        )

    async def _home_of(self, head: Head, body: RequestBody, network: str) -> Location:
        """Return the cell that the request is for. Raises Refusal."""
        try:
            location = await self._located(self._router.of_head(head), network)
            if location is None and self._router.reads_body(head):
                read = await body.beginning(MAX_BODY)
                location = await self._located(list(self._router.of_body(head, read)), network)
            if location is not None:
                location = await self._locator.after_move(location)
        except Unlocated as error:
            _log.warning("cell unknown", path=head.path, why=str(error))
            raise _unavailable() from None
        except TooManyUnknown:
            raise Refusal(
                ErrorType.RATE_LIMITED, "Too many unknown credentials from your network. Retry later.", retry_after_s=1
            ) from None
        if location is None and (cell := self._without_account(head)) is not None:
            location = Location(cell)
        if location is None or location.cell not in self._locator.cells:
            raise _unavailable()
        return location

    async def _located(self, named: list[Named], network: str) -> Location | None:
        """Return the cell of the first that has one."""
        for one in named:
            found = await self._of_address(one) if isinstance(one, Address) else await self._locator.find(one, network)
            if found is not None:
                return found
        return None

    async def _of_address(self, address: Address) -> Location | None:
        """Return the cell of a person; for a new one that of an invitation, else an open cell."""
        found = await self._locator.of_address(address.email)
        if found is not None or not address.new:
            return found
        invited = await self._locator.find(Key(KeyKind.INVITED, address.email), "")
        if invited is not None:
            return invited
        chosen = self._locator.for_new_account()
        if chosen is None:
            raise Refusal(
                ErrorType.UNAVAILABLE, "New accounts can't be created right now. Retry later.", retry_after_s=60
            )
        return Location(chosen)

    def _without_account(self, head: Head) -> str | None:
        hint = self._router.hint(head)
        if hint is not None and self._locator.is_up(hint):
            return hint
        return (self._locator.for_new_account() if head.path in _BEGINS else None) or self._locator.any_cell()

    # -- beside the request -----------------------------------------------------------------------

    def _client(self, scope: dict[str, Any]) -> str:
        """Return the client's address."""
        address: str = (forwarded.with_client(scope, self._settings.http_proxy_networks).get("client") or ("", 0))[0]
        return address

    def _hint(self, head: Head, cell: str, response: aiohttp.ClientResponse) -> list[tuple[bytes, bytes]]:
        """Return the cookie with the cell that answered, where people sign in, unless that names another one."""
        if not head.path.startswith("/v1/auth/") or self._router.hint(head) == cell:
            return []
        given = {value.partition("=")[0] for value in response.headers.getall("Set-Cookie", ())}
        if HINT_COOKIE in given or not (COOKIE in given or head.path.startswith(_HINTED)):
            return []
        return [(b"set-cookie", http_only(self._settings, HINT_COOKIE, cell, max_age_s=HINT_S).encode())]

    async def _report(self, scope: Mapping[str, Any], send: Send) -> None:
        """Answer `/healthz`, and `/readyz` with the cells; 503 before the directory was read first."""
        ready = scope["path"] == "/healthz" or bool(self._locator.cells)
        shown: dict[str, object] = {"status": "ok"}
        if scope["path"] == "/readyz":
            directory = {"ok": self._locator.current, "cells": sorted(self._locator.cells)}
            shown = {"status": "ready" if ready else "unready", "checks": {"directory": directory}}
        content = msgspec.json.encode(shown)
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(content))]
        await send({"type": "http.response.start", "status": 200 if ready else 503, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else content})


def create_app(settings: Settings | None = None) -> FrontApp:
    """Return the application; settings are read from the environment unless given."""
    return FrontApp(settings or load(os.environ).settings)


async def _write_metrics() -> None:
    while True:
        await asyncio.sleep(1)
        metrics.TALLY.write()


def _head(scope: Mapping[str, Any]) -> Head:
    """Return the head; raises the 404 for operations that cells have for fronts alone."""
    headers: dict[bytes, bytes] = {}
    for name, value in scope["headers"]:
        headers[name] = headers[name] + b"; " + value if name == b"cookie" and name in headers else value
    # A path without a slash would continue the host in the URL of the cell.
    if not scope["raw_path"].startswith(b"/") or scope["path"].startswith("/internal"):
        raise Refusal(ErrorType.NOT_FOUND, "No such path.")
    return Head(scope["method"], scope["path"], scope["query_string"].decode("latin-1"), headers)


def _is_framed(scope: Mapping[str, Any]) -> bool:
    """Return True if the length of the body can be read; `framing.check` refuses all others."""
    return all(value.isdigit() for name, value in scope["headers"] if name == b"content-length")


def _unavailable() -> Refusal:
    return Refusal(
        ErrorType.UNAVAILABLE,
        "The part of the service that serves your account is unreachable. Retry; for a send, reuse the same "
        "idempotencyKey.",
        retry_after_s=RETRY_S,
    )
