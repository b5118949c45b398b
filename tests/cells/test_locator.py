"""Fronts bear cells that answer slowly, in pieces, too much or not at all; cells here are small servers."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from uuid import uuid4

import aiohttp
import msgspec
import pytest
from aiohttp import web

from api.front import exchange
from api.front.exchange import CellDown, RequestBody
from api.http import visiting_operator
from engine.base import ids
from engine.base.errors import ErrorType, Refusal
from engine.base.settings import Settings
from engine.cells import ask, locator, overview
from engine.cells.directory import Cell, Directory, Placement
from engine.cells.locator import MAX_ASKED, Locator, TooManyUnknown, WhoseReply
from engine.cells.whose import Key, KeyKind
from tests.conftest import NewDatabase
from tests.harness.accounts import PEPPER
from tests.harness.patience import PATIENCE_S

Answering = Callable[[web.Request], Awaitable[web.StreamResponse]]
NETWORK = "192.0.2.0/24"


@contextlib.asynccontextmanager
async def cell_named(name: str, answering: Answering) -> AsyncIterator[Cell]:
    """Serve all requests to a cell with `answering`."""
    app = web.Application()
    app.router.add_route("*", "/{any:.*}", answering)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield Cell(name, f"http://127.0.0.1:{runner.addresses[0][1]}", None, None, "open", 100)
    finally:
        await runner.cleanup()


def answer_of(reply: WhoseReply) -> Answering:
    async def answering(_: web.Request) -> web.Response:
        return web.Response(body=msgspec.json.encode(reply))

    return answering


async def hang(_: web.Request) -> web.Response:
    await asyncio.sleep(PATIENCE_S)
    return web.Response(status=500)


@contextlib.asynccontextmanager
async def following(url: str, http: aiohttp.ClientSession, *cells: Cell) -> AsyncIterator[Locator]:
    """Follow a directory with these cells."""
    directory = await Directory.open(url)
    for cell in cells:
        await directory.put_cell(cell)
    found = Locator(url, PEPPER, http)
    running = asyncio.create_task(found.run())
    await found.looked.wait()
    yield found
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await found.close()
    await directory.close()


def unknown() -> Key:
    return Key(KeyKind.MESSAGE, str(ids.uuid7()))


async def test_a_network_that_sends_too_many_unknown_keys_costs_the_cells_no_more_questions(
    new_directory: NewDatabase, http: aiohttp.ClientSession
) -> None:
    asked = 0

    async def count(_: web.Request) -> web.Response:
        nonlocal asked
        asked += 1
        return web.Response(body=msgspec.json.encode(WhoseReply(here=False)))

    async with cell_named("one", count) as one, following(await new_directory(), http, one) as found:
        answered = refused = 0
        while refused < 20:
            try:
                assert await found.find(unknown(), NETWORK) is None
                answered += 1
            except TooManyUnknown:
                refused += 1
        assert asked == answered


async def test_a_cell_that_hangs_delays_no_key_of_another_cell(
    new_directory: NewDatabase, http: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (ask, locator):
        monkeypatch.setattr(module, "ASK_S", 10 * PATIENCE_S)
    here = answer_of(WhoseReply(here=True))
    async with (
        cell_named("one", here) as one,
        cell_named("two", hang) as two,
        following(await new_directory(), http, one, two) as found,
        asyncio.timeout(PATIENCE_S),
    ):
        keys = [unknown() for _ in range(3 * MAX_ASKED)]
        places = await asyncio.gather(*(found.find(key, NETWORK) for key in keys))
        assert {place.cell for place in places if place is not None} == {"one"}


async def test_a_front_follows_the_directory_whatever_goes_wrong_once(
    new_directory: NewDatabase, http: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes, failed = Directory.changes, asyncio.Event()

    async def fail_once(directory: Directory, after: int, limit: int) -> list[Placement]:
        if not failed.is_set():
            failed.set()
            raise ValueError("a defect")
        return await changes(directory, after, limit)

    url, account = await new_directory(), uuid4()
    async with cell_named("one", hang) as one, following(url, http, one) as found:
        directory = await Directory.open(url)
        await directory.place(account, "one")
        assert (await found.placement(account)) is not None
        monkeypatch.setattr(Directory, "changes", fail_once)
        await failed.wait()
        await directory.remove([account], "one", older_s=0)
        async with asyncio.timeout(PATIENCE_S):
            while await found.placement(account) is not None:
                await asyncio.sleep(0.05)
        await directory.close()


async def test_a_reply_in_pieces_is_read_whole(new_directory: NewDatabase, http: aiohttp.ClientSession) -> None:
    async def slowly(request: web.Request) -> web.StreamResponse:
        is_question = request.path == "/internal/whose"
        figures = {"version": "1", "accounts": 1, "queued": 0, "overdueSeconds": 0}
        whole = msgspec.json.encode(WhoseReply(here=True) if is_question else figures)
        response = web.StreamResponse()
        response.content_length = len(whole)
        await response.prepare(request)
        for octet in whole:
            await response.write(bytes([octet]))
            await asyncio.sleep(0)
        return response

    async with cell_named("one", slowly) as one, following(await new_directory(), http, one) as found:
        location = await found.find(unknown(), NETWORK)
        assert location is not None
        assert location.cell == "one"
        assert await overview.figures_of(http, one, PEPPER) is not None


async def test_a_reply_that_is_too_long_is_none(http: aiohttp.ClientSession) -> None:
    async def long(_: web.Request) -> web.Response:
        return web.Response(body=b" " * ask.MAX_REPLY + b"{}")

    async with cell_named("one", long) as one:
        with pytest.raises(ask.CellSilent):
            await ask.ask(http, one, "/internal/cell", "token")
        assert await overview.figures_of(http, one, PEPPER) is None


def scope_of(**changes: object) -> dict[str, object]:
    made: dict[str, object] = {
        "method": "GET", "raw_path": b"/v1/me", "query_string": b"", "client": ("192.0.2.1", 4), "headers": [],
    }  # fmt: skip
    return made | changes


async def end_of_body() -> dict[str, object]:
    return {"type": "http.disconnect"}


async def test_a_response_that_breaks_off_is_a_cell_that_is_down(http: aiohttp.ClientSession) -> None:
    async def break_off(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        response.content_length = 100
        await response.prepare(request)
        await response.write(b"half")
        assert request.transport is not None
        request.transport.close()
        return response

    async with cell_named("one", break_off) as one:
        scope = scope_of()
        with pytest.raises(CellDown):
            await exchange.request(http, one, scope, RequestBody(scope, end_of_body, 1.0), "192.0.2.1")


async def test_the_cell_hears_one_address_that_no_header_takes_away(http: aiohttp.ClientSession) -> None:
    async def echo(request: web.Request) -> web.Response:
        return web.json_response(request.headers.getall("X-Forwarded-For"))

    headers = [(b"connection", b"close, X-Forwarded-For"), (b"x-forwarded-for", b"198.51.100.9")]
    async with cell_named("one", echo) as one:
        scope = scope_of(headers=headers)
        answer = await exchange.request(http, one, scope, RequestBody(scope, end_of_body, 1.0), "192.0.2.1")
        assert await answer.json() == ["192.0.2.1"]


async def test_a_refusal_that_the_front_does_not_know_is_a_503(settings: Settings, http: aiohttp.ClientSession) -> None:
    said = {"error": {"type": "of_a_later_version", "message": "No."}}

    async def refuse(_: web.Request) -> web.Response:
        return web.json_response(said, status=403)

    errand = visiting_operator.Errand("GET", "/v1/operator/nodes", "two")
    async with cell_named("one", refuse) as one:
        with pytest.raises(CellDown):
            await exchange.vouched(http, one, scope_of(), "192.0.2.1", errand, settings)
        said["error"]["type"] = ErrorType.FORBIDDEN.value
        with pytest.raises(Refusal):
            await exchange.vouched(http, one, scope_of(), "192.0.2.1", errand, settings)
