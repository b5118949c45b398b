"""A front as an operator runs it: `ops cells` fills the directory, `ops up` starts it, `ops doctor` checks it."""

import os
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import pytest

from engine.base.settings import BadSetting, load
from loadtests.ports import reserve_port
from ops.host import process_specs, sockets
from tests.cells.conftest import TestCells
from tests.harness.accounts import PEPPER, make_account
from tests.harness.api import Api
from tests.harness.service import Ended, run_ops

PEPPERED = {"WAYBILL_KEY_PEPPER": str(PEPPER), "WAYBILL_DIRECTORY_URL": "postgresql://db.test/directory"}


def test_a_front_is_alone_on_its_host_and_has_no_database() -> None:
    settings = load({**PEPPERED, "WAYBILL_PROCESSES": "front"}).settings

    assert [spec.name for spec in process_specs.processes(settings)] == ["front", "front-smtp", "metrics"]
    assert process_specs.socket_names(settings) == [
        sockets.HTTP, sockets.SUBMISSION, sockets.SUBMISSIONS, sockets.SMTP,
    ]  # fmt: skip
    with pytest.raises(BadSetting, match="or front alone"):
        load({**PEPPERED, "WAYBILL_PROCESSES": "front,api", "WAYBILL_CELL": "one"})


@pytest.mark.parametrize(
    ("settings", "missing"),
    [
        ({"WAYBILL_PROCESSES": "front"}, "WAYBILL_DIRECTORY_URL"),
        ({"WAYBILL_CELL": "one"}, "WAYBILL_DIRECTORY_URL"),
        (PEPPERED, "WAYBILL_CELL"),
        ({**PEPPERED, "WAYBILL_CELL": "One"}, "WAYBILL_CELL"),
    ],
)
def test_incomplete_settings_of_cells_are_refused(settings: dict[str, str], missing: str) -> None:
    with pytest.raises(BadSetting, match=missing):
        load(settings)


async def test_a_front_is_set_up_started_checked_and_stopped(
    cells: TestCells, http: aiohttp.ClientSession, tmp_path: Path
) -> None:
    account = await make_account(cells.one.pool)
    environ = {name: value for name, value in os.environ.items() if not name.startswith("WAYBILL_")} | {
        "WAYBILL_STATE": str(tmp_path), "WAYBILL_KEY_PEPPER": str(PEPPER), "WAYBILL_PROCESSES": "front",
        "WAYBILL_DIRECTORY_URL": await empty_database(cells), "WAYBILL_API_PORT": str(reserve_port()),
        "WAYBILL_METRICS_PORT": str(reserve_port()), "WAYBILL_DNS_PORT": str(reserve_port()),
        "WAYBILL_SINK_PORT": str(reserve_port()), "WAYBILL_SUBMISSION_PORT": str(reserve_port()),
        "WAYBILL_SUBMISSION_TLS_PORT": str(reserve_port()), "WAYBILL_MX_PORT": str(reserve_port()),
    }  # fmt: skip

    def ops(*words: str) -> Ended:
        ended = run_ops(environ, *words)
        assert ended.status == 0, ended.out + ended.err
        return ended

    refused = run_ops(environ, "up", "--detach")
    assert refused.status == 1
    assert "cells migrate" in refused.out + refused.err
    stranger = run_ops(environ | {"WAYBILL_KEY_PEPPER": ""}, "up", "--detach")
    assert stranger.status == 1
    assert "WAYBILL_KEY_PEPPER is not set" in stranger.out + stranger.err
    assert ops("cells", "migrate", "--json").json["applied"] == ["0001_directory.sql"]
    for cell in (cells.one, cells.two):
        ops("cells", "add", cell.name, cell.api.base_url, "--weight", "7")
    for words in (["http//one.test"], ["one.test:80"], ["http://one.test/?a"], ["http://one.test", "--mx", "one.test"]):
        assert run_ops(environ, "cells", "add", "one", *words).status == 1
    ops("cells", "close", "two")
    ops("cells", "place", account.public_id, "one")
    ops("up", "--detach")
    try:
        front = Api(f"http://127.0.0.1:{environ['WAYBILL_API_PORT']}", http)
        assert (await front.get("/v1/me", account.token)).status == 200
        metrics = await Api(f"http://127.0.0.1:{environ['WAYBILL_METRICS_PORT']}", http).get("/metrics")
        assert metrics.status == 200
        checks = {one["check"]: one["ok"] for one in ops("doctor", "--json").json}
        assert checks["directory"]
        assert checks["api"]
        one, two = ops("cells", "list", "--json").json
        assert (one["cell"], one["placed"], one["queued"]) == ("one", 1, 0)
        assert (two["state"], two["weight"]) == ("closed", 7)
        assert [row["name"] for row in ops("status", "--json").json] == ["front", "front-smtp", "metrics"]
    finally:
        ops("stop")


async def empty_database(cells: TestCells) -> str:
    """Return the URL of a new, empty database beside those of the cells."""
    name = f"front_{reserve_port()}"
    await cells.one.pool.execute(f"CREATE DATABASE {name}")
    assert cells.one.settings.database_url is not None
    return urlsplit(cells.one.settings.database_url)._replace(path=f"/{name}").geturl()
