"""The handlers of the guide get real posts: each event is stored once, and an unsigned post is refused."""

import asyncio
import contextlib
import os
import shutil
import sqlite3
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from engine.base import ids
from engine.base.settings import Settings
from engine.events.webhooks.rules import signature
from loadtests.ports import reserve_port
from tests.harness import printed_programs
from tests.harness.guides import guides
from tests.harness.patience import PATIENCE_S
from tests.harness.receiver import World, world

HANDLERS = {
    "python": ("hook.py", [sys.executable, "hook.py"]), "js": ("hook.mjs", ["node", "hook.mjs"]),
    "php": ("hook.php", ["php", "-S", "127.0.0.1:PORT", "hook.php"]),
}  # fmt: skip
EVERY_HANDLER = pytest.mark.parametrize("language", HANDLERS)


@contextlib.asynccontextmanager
async def handler(language: str, folder: Path, port: int, secret: str) -> AsyncIterator[None]:
    """The printed handler at work; skips the test where its language is not installed."""
    name, words = HANDLERS[language]
    if shutil.which(words[0]) is None:
        pytest.skip(f"{words[0]} is not installed")
    samples = guides()["webhooks-end-to-end"].samples
    [text] = [one.text for one in samples if one.language == language and "tab" in one.words]
    (folder / name).write_text(text)
    process = await asyncio.create_subprocess_exec(
        *[word.replace("PORT", str(port)) for word in words], cwd=folder,
        env={**os.environ, "WAYBILL_SIGNING_SECRET": secret, "PORT": str(port)},
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        async with asyncio.timeout(PATIENCE_S):
            while process.returncode is None:
                with contextlib.suppress(OSError):
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                    writer.close()
                    break
                await asyncio.sleep(0.05)  # a process says nowhere that it listens
        assert process.returncode is None
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def stored(folder: Path) -> list[str]:
    """Return the ids of the events that the handler kept."""
    if (folder / "inbox.db").exists():
        with contextlib.closing(sqlite3.connect(folder / "inbox.db")) as database:
            return sorted(row[0] for row in database.execute("SELECT id FROM inbox"))
    return sorted(file.stem for file in (folder / "inbox").glob("*.json"))


@pytest.fixture
async def here(settings: Settings, own_database: str) -> AsyncIterator[World]:
    async with world(settings, own_database) as made:
        yield made


@EVERY_HANDLER
async def test_a_handler_stores_each_event_of_the_service_once(language: str, here: World, tmp_path: Path) -> None:
    port = reserve_port()
    endpoint = await here.endpoint(f"http://127.0.0.1:{port}/")
    async with handler(language, tmp_path, port, endpoint.secret), here.posting():
        events = [await here.event(endpoint.account, kind) for kind in ("delivered", "bounced")]
        await here.until_posted(endpoint)
        attempts = [await here.attempts(endpoint, event) for event in events]

    assert [len(rows) for rows in attempts] == [1, 1]
    assert stored(tmp_path) == sorted(ids.format_id(ids.Kind.EVENT, event) for event in events)


async def test_the_job_of_the_guide_works_on_each_stored_event_once(tmp_path: Path) -> None:
    [job] = [one.text for one in guides()["webhooks-end-to-end"].samples if "name=work.py" in one.words]
    [stores] = [
        line
        for one in guides()["webhooks-end-to-end"].samples
        for line in one.text.splitlines()
        if "CREATE TABLE" in line
    ]
    with contextlib.closing(sqlite3.connect(tmp_path / "inbox.db")) as database:
        exec(stores, {"database": database})
        bodies = [(f"evt_{kind}", kind, '{"data": {"detail": {"recipient": "gone@people.test"}}}') for kind in
                  ("delivered", "bounced")]  # fmt: skip
        database.executemany("INSERT INTO inbox (id, type, body) VALUES (?, ?, ?)", bodies)
        database.commit()

    ended = [await printed_programs.run("python", job, tmp_path, {}) for _ in range(2)]

    assert [(one.status, one.out.strip()) for one in ended] == [(0, "bounced gone@people.test"), (0, "")]


@EVERY_HANDLER
async def test_a_handler_refuses_what_is_not_signed_and_keeps_a_repeat_once(language: str, tmp_path: Path) -> None:
    port, now = reserve_port(), int(time.time())
    body = b'{"id":"evt_1","type":"delivered","seq":1,"data":{}}'
    good, other = signature("whsec_x", body, now), signature("whsec_y", body, now)
    posts: list[tuple[dict[str, str], int]] = [
        ({"Service-Signature": good}, 204),
        ({"Service-Signature": good}, 204),
        ({"Service-Signature": other, "Service-Signature-Previous": good}, 204),
        ({"Service-Signature": other}, 400),
        ({"Service-Signature": signature("whsec_x", body, now - 400)}, 400),
        ({"Service-Signature": "t=1,v1"}, 400),
        ({}, 400),
    ]
    async with handler(language, tmp_path, port, "whsec_x"), aiohttp.ClientSession() as session:
        for headers, expected in posts:
            async with session.post(f"http://127.0.0.1:{port}/", data=body, headers=headers) as response:
                assert response.status == expected, headers

    assert stored(tmp_path) == ["evt_1"]


@pytest.mark.parametrize("language", ["js", "php"])  # the database of the third one is open all the time
async def test_a_handler_that_can_not_store_an_event_asks_for_it_again(language: str, tmp_path: Path) -> None:
    port, body = reserve_port(), b'{"id":"evt_1","type":"delivered","seq":1,"data":{}}'
    headers = {"Service-Signature": signature("whsec_x", body, int(time.time()))}
    async with handler(language, tmp_path, port, "whsec_x"), aiohttp.ClientSession() as session:
        shutil.rmtree(tmp_path / "inbox", ignore_errors=True)
        (tmp_path / "inbox").touch()  # a file, so nothing can be stored below it
        async with session.post(f"http://127.0.0.1:{port}/", data=body, headers=headers) as response:
            assert response.status == 500

        (tmp_path / "inbox").unlink()
        (tmp_path / "inbox").mkdir()
        async with session.post(f"http://127.0.0.1:{port}/", data=body, headers=headers) as response:
            assert response.status == 204

    assert stored(tmp_path) == ["evt_1"]
