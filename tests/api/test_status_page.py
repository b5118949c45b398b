"""`/status` and `/status.json`: off by default, one measurement for many readers, and 200 while PostgreSQL is away."""

import asyncio
import re
from datetime import timedelta

import orjson
import pytest
from click.testing import CliRunner, Result
from msgspec import structs

from api.areas.status_page.resources import PATHS, StatusReports
from api.pages import status_page
from engine.base import clock
from engine.base.settings import Settings, to_environ
from engine.sending.status_page import rules, service, store
from engine.store.postgres import close_pool, open_pool
from ops.cli import cli
from ops.host.temporary_servers import Temporary
from tests.conftest import ServeApi
from tests.harness.accounts import make_account
from tests.harness.api import Answer, Api
from tests.harness.patience import PATIENCE_S

KEPT_S = 6  # a little longer than a report is kept


@pytest.fixture(scope="module")
def shown(settings: Settings, disposable_servers: Temporary) -> Settings:
    return structs.replace(
        settings,
        database_url=disposable_servers.database_url,
        redis_url=disposable_servers.redis_url,
        status_page=True,
        processes=("api", "worker"),
    )


@pytest.fixture(scope="module")
def own(shown: Settings, serve: ServeApi) -> Api:
    return serve(shown)


async def read(api: Api, path: str) -> Answer:
    """Read without compression."""
    return await api.get(path, headers=[("Accept-Encoding", "identity")])


async def test_it_is_off_by_default(api: Api) -> None:
    assert [(await api.get(path)).status for path in PATHS] == [404, 404]


async def test_it_names_the_components_and_no_account(own: Api, shown: Settings) -> None:
    pool = await open_pool(shown.database_url or "", name="tests", largest=2)
    account = await make_account(pool)
    yesterday = clock.now() - timedelta(days=1)
    quarters = [rules.quarter_of(yesterday), rules.quarter_of(yesterday) - timedelta(minutes=15)]
    await store.WRITE_QUARTERS.execute(pool, ["webhooks"] * 2, quarters, [2, 0])
    await service.open_incident(pool, "<b>Slow</b>", "Up to 5 min\n<script>late</script>")
    await close_pool(pool)
    page, json = await read(own, "/status"), await read(own, "/status.json")
    html = page.body.decode()

    assert (page.status, json.status) == (200, 200)
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.headers["cache-control"] == json.headers["cache-control"] == "public, max-age=5"
    assert page.headers["content-security-policy"] == status_page.policy()
    assert "script-src" not in status_page.policy()
    assert json.headers["content-type"] == "application/json"
    assert json.json["status"] == "up"
    assert [one["name"] for one in json.json["components"]] == ["accepting", "delivering", "webhooks"]
    assert {(len(one["days"]), one["state"]) for one in json.json["components"]} == {(90, "up")}
    assert [one["uptime"] for one in json.json["components"]] == [None, None, 50.0]
    assert json.json["components"][2]["days"][-2:][0] == {
        "date": f"{yesterday:%Y-%m-%d}", "state": "down", "uptime": 50.0
    }  # fmt: skip
    assert json.json["incidents"][0]["title"] == "<b>Slow</b>"
    assert "&lt;b&gt;Slow&lt;/b&gt;" in html
    assert "<script" not in html
    assert "style=" not in html
    assert f"{yesterday:%Y-%m-%d}: Down, 50.00% uptime" in html
    assert "Webhooks, last 90 days: 1 down, 89 not measured" in html
    assert account.public_id not in html + json.body.decode()
    assert account.domain not in html + json.body.decode()
    for path in re.findall(r'(?:href|src)="(/[^"]*)"', html):
        assert (await own.get(path)).status == 200, path
    assert (await own.request("HEAD", "/status")).status == 200
    assert (await own.get("//status")).status < 500
    assert (await own.get("/status", headers={"If-None-Match": page.headers["etag"]})).status in {200, 304}


async def test_many_readers_share_one_measurement(shown: Settings) -> None:
    pool = await open_pool(shown.database_url or "", name="tests", largest=2)
    reports = StatusReports(pool, shown)
    found = await asyncio.gather(*(reports.report() for _ in range(500)))
    await close_pool(pool)

    assert len(set(map(id, found))) == 1


async def test_without_postgres_it_says_so_with_200_and_keeps_the_history(
    own: Api, disposable_servers: Temporary
) -> None:
    before = (await read(own, "/status.json")).json
    disposable_servers.postgres.kill()
    try:
        async with asyncio.timeout(PATIENCE_S):
            while (answer := await read(own, "/status.json")).json["status"] != "down":
                assert answer.status == 200
                await asyncio.sleep(0.2)  # until the kept report is made anew
        page = await read(own, "/status")
    finally:
        disposable_servers.postgres.start()

    assert {one["state"] for one in answer.json["components"]} == {"down"}
    assert answer.json["historyKnown"]
    assert answer.json["components"][2]["days"] == before["components"][2]["days"]
    assert answer.json["incidents"] == before["incidents"]
    assert page.status == 200
    assert "The database does not respond" in page.body.decode()
    async with asyncio.timeout(PATIENCE_S):
        while (await read(own, "/status.json")).json["status"] != "up":
            await asyncio.sleep(0.2)  # until the pool has connected again


async def test_operators_write_incidents_with_the_command(own: Api, shown: Settings) -> None:
    async def run(*words: str) -> Result:
        words = ("status-page", "incident", *words)
        return await asyncio.to_thread(CliRunner().invoke, cli, list(words), env=to_environ(shown))

    opened = await run("open", "Webhooks wait", "We look into it.", "--json")
    assert [one["message"] for one in orjson.loads(opened.output)] == ["We look into it."]
    assert (await run("open", "Webhooks wait", "Again.")).exit_code == 1
    assert (await run("update", "Webhooks wait", "Found.")).exit_code == 0
    assert (await run("close", "Webhooks wait", "Mended.")).exit_code == 0
    refused = await run("close", "Webhooks wait", "Again.")
    assert (refused.exit_code, "No open incident has the title 'Webhooks wait'" in refused.output) == (1, True)
    assert '"Mended."' in (await run("list", "--json")).output
    await asyncio.sleep(KEPT_S)  # the page is kept for 5 seconds
    [incident] = [one for one in (await read(own, "/status.json")).json["incidents"] if one["title"] == "Webhooks wait"]

    assert [one["message"] for one in incident["updates"]] == ["Mended.", "Found.", "We look into it."]
    assert incident["closedAt"] is not None
