"""Hosts of one installation agree on pepper and shards, or the one that does not is refused with what to set."""

import asyncio
import json
from pathlib import Path

import msgspec
import pytest

from engine.base import ids
from engine.base.plans import Plan
from engine.base.process_names import process_name
from engine.base.settings import Settings, load, to_environ
from engine.store.postgres import open_pool
from ops import admin
from ops.cli import main
from ops.host import cluster_check
from ops.host.cluster_check import ClusterMismatch
from ops.host.state import make_state
from tests.harness.accounts import PEPPER
from tests.ops.conftest import NewDatabase
from tests.ops.installation import environ

OTHER = {"key_pepper": "another pepper, just as long as the first one"}


@pytest.fixture(scope="module")
async def own_database(lasting_database: NewDatabase) -> str:
    """A migrated database for these tests: each begins without an installation."""
    return await lasting_database()


@pytest.fixture
async def first(own_database: str, redis_url: str, tmp_path: Path) -> Settings:
    """The settings of the host that came first."""
    given = {"WAYBILL_DATABASE_URL": own_database, "WAYBILL_REDIS_URL": redis_url, "WAYBILL_KEY_PEPPER": PEPPER}
    settings = load(environ(make_state(tmp_path / "state"), **given)).settings
    await run(settings, "TRUNCATE installation, shard_members, api_keys")
    assert await cluster_check.agree(settings) == []
    return settings


def changed(settings: Settings, **changes: object) -> Settings:
    return msgspec.structs.replace(settings, **changes)


async def keyed(settings: Settings) -> None:
    """Make a key under this pepper."""
    email = f"{ids.encode(ids.uuid7())}@agreement.test"
    async with admin.opened(settings) as pool:
        account = await admin.create_account(pool, name="A", email=email, plan=Plan.SCALE, daily_cap=10)
        await admin.create_key(pool, settings, account=account["accountId"], name="k", scopes=["all"])


async def test_another_pepper_is_refused_once_a_key_was_made(first: Settings) -> None:
    await keyed(first)

    with pytest.raises(ClusterMismatch, match=r"key pepper of this host is not the one.*Set WAYBILL_KEY_PEPPER"):
        await cluster_check.agree(changed(first, **OTHER))
    assert await cluster_check.agree(first) == []


async def test_a_lost_pepper_is_given_up_on_purpose_only(first: Settings) -> None:
    await keyed(first)
    await cluster_check.adopt(changed(first, **OTHER))

    assert await cluster_check.agree(changed(first, **OTHER)) == []
    with pytest.raises(ClusterMismatch):
        await cluster_check.agree(first)


async def test_a_pepper_may_follow_the_one_that_is_set_as_the_previous_one(first: Settings) -> None:
    await keyed(first)
    await run(first, "UPDATE api_keys SET pepper_print = NULL")  # as keys of before 0070
    old, new = str(PEPPER), OTHER["key_pepper"]
    announced, following = changed(first, key_pepper_previous=new), changed(first, **OTHER, key_pepper_previous=old)

    assert await cluster_check.agree(announced) == []
    assert await cluster_check.agree(first) == []  # not restarted yet
    (message,) = await cluster_check.agree(following)
    assert "accepts what was made under the previous one" in message
    assert await cluster_check.agree(following) == []
    assert await cluster_check.agree(announced) == []  # changes nothing back
    assert await cluster_check.agree(changed(first, **OTHER)) == []  # as after the end of the change
    with pytest.raises(ClusterMismatch, match="WAYBILL_KEY_PEPPER_PREVIOUS"):
        await cluster_check.agree(first)
    async with admin.opened(first) as pool:
        assert await pool.fetchval("SELECT pepper_print FROM api_keys") == PEPPER.fingerprint
        assert await pool.fetchval("SELECT pepper_changed_at < now() FROM installation")


async def test_the_command_counts_what_depends_on_each_pepper(
    first: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    await keyed(first)
    following = changed(first, **OTHER, key_pepper_previous=str(PEPPER))
    await cluster_check.agree(following)
    for name, value in to_environ(following).items():
        monkeypatch.setenv(name, value)

    assert await asyncio.to_thread(main, ["pepper", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert await asyncio.to_thread(main, ["pepper"]) == 0
    shown = capsys.readouterr()

    assert told["previousPepper"] is True
    assert told["changedAt"] < told["mailUntil"]
    assert {"what": "API keys", "present": 0, "previous": 1, "unreadable": 0} in told["stored"]
    assert "Keep the previous pepper" in shown.err
    assert "webhook secrets" in shown.out


async def test_what_nothing_depends_on_yet_may_change(first: Settings) -> None:
    messages = await cluster_check.agree(changed(first, shards=64, **OTHER))

    assert [message.split()[2:4] for message in messages] == [["now", "uses"], ["now", "has"]]
    assert await cluster_check.agree(changed(first, shards=64, **OTHER)) == []


async def test_another_number_of_shards_is_refused_while_a_delivering_process_lives(first: Settings) -> None:
    await member(first, "elsewhere:/var/lib/waybill:mta-1")

    with pytest.raises(ClusterMismatch, match="WAYBILL_SHARDS is 64 on this host, and this installation runs with 256"):
        await cluster_check.agree(changed(first, shards=64))


async def test_a_dead_predecessor_is_no_namesake(first: Settings) -> None:
    await member(first, process_name(first.state, "mta-1"))

    assert await cluster_check.agree(changed(first, lease_s=1.0)) == []


async def test_a_living_namesake_on_another_host_is_refused(first: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    await member(first, process_name(first.state, "mta-2"))

    async def renewing(_pause_s: float) -> None:
        await renewed(first)

    monkeypatch.setattr("ops.host.cluster_check.asyncio.sleep", renewing)
    with pytest.raises(ClusterMismatch, match=r"Another host runs .*:mta-2 against this database"):
        await cluster_check.agree(first)


async def test_a_host_that_delivers_nothing_has_no_namesakes(first: Settings) -> None:
    await member(first, process_name(first.state, "mta-1"))

    assert await cluster_check.agree(changed(first, processes=("api",))) == []


async def member(settings: Settings, name: str) -> None:
    await run(
        settings,
        "INSERT INTO shard_members (id, name, expires_at) VALUES ($1, $2, clock_timestamp() + interval '1 minute')",
        ids.uuid7(),
        name,
    )


async def renewed(settings: Settings) -> None:
    await run(settings, "UPDATE shard_members SET expires_at = expires_at + interval '1 second'")


async def run(settings: Settings, text: str, *values: object) -> None:
    assert settings.database_url is not None
    pool = await open_pool(settings.database_url, name="agreement tests", largest=1)
    await pool.execute(text, *values)
    await pool.close()
