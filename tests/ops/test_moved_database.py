"""A state folder whose first run is of another database, and a move from the embedded servers to another PostgreSQL."""

import contextlib
import json
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from msgspec import structs

from engine.base import ids
from engine.base.local_mode import FIRST_RUN
from engine.base.plans import Plan
from engine.base.settings import Settings
from loadtests.kit.service import Service, clear, make_folder
from ops import admin
from ops.host import first_run, store_servers, up
from ops.host.console_access import console_lines
from ops.host.postgres_server import PostgresServer
from ops.host.process_specs import ROOT
from ops.local.sink_store import entries
from tests.conftest import NewDatabase
from tests.harness.own_servers import InstalledPostgres
from tests.harness.patience import PATIENCE_S

FEW = {"API_WORKERS": "1", "MTA_WORKERS": "1"}


# -- a first run of another database ---------------------------------------------------------------


@pytest.fixture
async def own(settings: Settings, new_database: NewDatabase, tmp_path: Path) -> Settings:
    return structs.replace(settings, database_url=await new_database(), state=tmp_path)


def keep(state: Path, account: str) -> dict[str, Any]:
    made = {"accountId": account, "email": "ann@local.test", "apiKey": "svc_live_lost", "baseUrl": "http://x"}
    (state / FIRST_RUN).write_text(json.dumps(made))
    return made


async def test_a_first_run_of_another_database_is_never_named(own: Settings) -> None:
    keep(own.state, ids.format_id(ids.Kind.ACCOUNT, ids.uuid7()))

    made = await first_run.ensure(own, own.state)
    lines = [up._ready_line(own, made, 1.0), *await console_lines(own, made, terminal=False)]

    assert made == {}
    assert any(line.startswith("There is no account yet. Create one: ") for line in lines)
    assert not any(FIRST_RUN in line for line in lines)


async def test_the_first_run_of_this_database_is_kept(own: Settings) -> None:
    async with admin.opened(own) as pool:
        account = await admin.create_account(pool, name="A", email="ann@local.test", plan=Plan.FREE, daily_cap=None)
    made = keep(own.state, account["accountId"])

    assert await first_run.ensure(own, own.state) == made | {"baseUrl": own.public_url}


# -- a move ----------------------------------------------------------------------------------------


@contextlib.contextmanager
def installed(folder: Path, major: int) -> Iterator[PostgresServer]:
    program = store_servers.find(f"PostgreSQL {major}")
    if program is None:
        pytest.skip(f"PostgreSQL {major} is not installed and was not fetched (`ops test --stores`)")
    server = InstalledPostgres(folder, program.parent)
    try:
        server.start()
        yield server
    finally:
        server.end()
        shutil.rmtree(server.paths.base, ignore_errors=True)


@pytest.mark.exhaustive
@pytest.mark.timeout(400)
@pytest.mark.parametrize("major", [15, 17])
async def test_a_service_moves_from_its_embedded_servers_to_another_postgresql(major: int) -> None:
    folders = [make_folder() for _ in range(3)]
    try:
        with installed(folders[2], major) as server:
            with Service(folders[0], FEW) as before:
                made = before.first_run
                told = [send(before, made["apiKey"], number) for number in range(3)]
                until_arrived(before, 3)
                assert before.stop() == 0
                run(before, "backup", str(folders[0] / "backup"))

            after = Service(folders[1], FEW | {"DATABASE_URL": server.url})
            run(after, "restore", str(folders[0] / "backup"), "--no-hold")
            with after:
                assert after.first_run == made | {"baseUrl": after.base_url}
                assert [asked(after, made["apiKey"], message)["status"] for message in told] == ["delivered"] * 3
                assert send(after, made["apiKey"], 0) == told[0]  # its idempotency key came along
                send(after, made["apiKey"], 3)
                until_arrived(after, 1)
                connection = await asyncpg.connect(server.url)
                assert connection.get_server_version().major == major
                await connection.close()
                assert after.stop() == 0
    finally:
        for folder in folders:
            clear(folder)


def run(service: Service, *words: str) -> None:
    """Run an operator's command on the service's settings."""
    done = subprocess.run(
        [sys.executable, "-m", "ops", *words],
        cwd=ROOT,
        env=service.environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def send(service: Service, key: str, number: int) -> str:
    """Send message `number`; return its id."""
    made = service.first_run
    message = {
        "from": f"hello@{made['domain']}", "to": ["ann@example.com"], "subject": f"Hello {number}", "text": "It works.",
        "idempotencyKey": f"move-{number}",
    }  # fmt: skip
    return str(_called(service, key, "/v1/emails", message)["id"])


def asked(service: Service, key: str, message: str) -> dict[str, Any]:
    """Return a message as the API shows it."""
    return _called(service, key, f"/v1/emails/{message}", None)


def until_arrived(service: Service, count: int) -> None:
    """Wait until the service's sink has so many messages."""
    ends = time.monotonic() + PATIENCE_S
    while len(list(entries(service.sink))) < count:
        assert time.monotonic() < ends
        time.sleep(0.1)  # the sink is another process, which tells nobody what it stored


def _called(service: Service, key: str, path: str, body: object) -> dict[str, Any]:
    request = urllib.request.Request(
        service.base_url + path,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {key}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return dict(json.load(answer))
