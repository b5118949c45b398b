"""The doctor at the servers: what is wrong with PostgreSQL, Redis, our own doors and DNS is found by name."""

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit
from uuid import UUID

import asyncpg
import prometheus_client
import pytest

from engine.base import ids
from engine.base.settings import Settings, to_environ
from engine.people.people import store as people
from engine.store import metrics as figures
from engine.store import partitions
from engine.store.redis import connect
from loadtests.ports import reserve_port
from ops.host.state import StateLock, make_state
from ops.host.temporary_servers import Temporary
from ops.local.dns import DnsBehaviour, Responder
from ops.local.sink import Sink
from tests.harness.accounts import make_account
from tests.harness.people import make_person
from tests.harness.tcp import listening
from tests.ops.installation import environ, examined


async def queue_row(pool: asyncpg.Pool, account: UUID, *, due_in: timedelta) -> None:
    await pool.execute(
        "INSERT INTO queue (message_id, domain, shard, account_id, from_domain, recipients, total, due_at) "
        "VALUES ($1, 'people.test', 3, $2, 'shop.test', '[]', 1, $3)",
        ids.uuid7(), account, datetime.now(UTC) + due_in,
    )  # fmt: skip


# -- PostgreSQL -------------------------------------------------------------------------------


async def test_a_database_as_it_should_be(given: dict[str, str], own_pool: asyncpg.Pool) -> None:
    await make_account(own_pool)
    found = await examined(given)

    for check in ("postgres", "connections", "clock", "migrations", "partitions", "queue", "signing keys", "redis"):
        assert found[check].ok, found[check]
    assert found["postgres"].found.startswith("answers, PostgreSQL")
    assert "1 verified" in found["signing keys"].found
    # What tests give up for speed no installation may.
    assert found["durability"].found == "fsync=off, synchronous_commit=off, full_page_writes=off"
    assert "postgresql.conf" in (found["durability"].mend or "")


async def test_operators_without_a_person_or_a_confirmation_are_named(
    given: dict[str, str], own_pool: asyncpg.Pool
) -> None:
    named = given | {"WAYBILL_OPERATORS": "ann@ops.test, bob@ops.test"}
    ann = await make_person(own_pool, (await make_account(own_pool)).id, email="ann@ops.test")
    found = (await examined(named))["operators"]
    assert (found.ok, found.found) == (False, "no person has the address bob@ops.test")

    await make_person(own_pool, ann.account_id, "member", email="bob@ops.test")
    await people.SET_OPERATOR.execute(own_pool, ann.id, datetime.now(UTC))
    found = (await examined(named))["operators"]
    assert (found.ok, found.found) == (False, "not confirmed: bob@ops.test")
    assert "ops person operator" in (found.mend or "")

    await own_pool.execute("UPDATE users SET operator_at = now()")
    assert (await examined(named))["operators"].ok


async def test_unsubscribe_links_need_https_in_live_mode(given: dict[str, str], own_pool: asyncpg.Pool) -> None:
    live = given | {"WAYBILL_DELIVERY": "live", "WAYBILL_PUBLIC_URL": "http://mail.example.com"}
    assert (await examined(live))["public URL"].ok

    await own_pool.execute(
        "INSERT INTO unsubscribe_links (id, account_id, address, created_at) VALUES ($1, $2, 'ann@x.test', now())",
        ids.uuid7(), (await make_account(own_pool)).id,
    )  # fmt: skip
    found = (await examined(live))["public URL"]
    assert not found.ok
    assert "WAYBILL_PUBLIC_URL" in (found.mend or "")
    assert (await examined(live | {"WAYBILL_PUBLIC_URL": "https://mail.example.com"}))["public URL"].ok
    assert (await examined(given))["public URL"].ok


async def test_a_database_that_is_away_is_found_quickly(given: dict[str, str], tmp_path: Path) -> None:
    began = time.monotonic()
    found = await examined(given | {"WAYBILL_DATABASE_URL": f"postgresql://postgres@127.0.0.1:{reserve_port()}/x"})

    assert not found["postgres"].ok
    assert "WAYBILL_DATABASE_URL" in (found["postgres"].mend or "")
    assert "queue" not in found
    assert found["redis"].ok
    assert time.monotonic() - began < 60


@pytest.mark.exhaustive
async def test_servers_that_hang_are_found_within_their_time(given: dict[str, str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        began = time.monotonic()
        found = await examined(
            given
            | {
                "WAYBILL_DATABASE_URL": f"postgresql://postgres@127.0.0.1:{port}/x?sslmode=disable",
                "WAYBILL_REDIS_URL": f"redis://127.0.0.1:{port}",
            }
        )

    assert not found["postgres"].ok
    assert not found["redis"].ok
    assert time.monotonic() - began < 60


async def test_an_unknown_option_of_a_redis_url_is_named(given: dict[str, str]) -> None:
    found = await examined(given | {"WAYBILL_REDIS_URL": "rediss://:hunter2@127.0.0.1/0?ssl_ca_cert=/etc/ca.pem"})

    assert "the unknown option ssl_ca_cert" in found["redis"].found
    assert "hunter2" not in repr(found)


async def test_a_password_is_never_shown(given: dict[str, str]) -> None:
    port = reserve_port()
    secret = {
        "WAYBILL_DATABASE_URL": f"postgresql://u:hunter2@127.0.0.1:{port}/x",
        "WAYBILL_REDIS_URL": f"redis://:hunter2@127.0.0.1:{port}",
    }
    found = await examined(given | secret)

    assert "hunter2" not in repr(found)


async def test_a_database_that_was_never_migrated_is_found(given: dict[str, str], servers: Temporary) -> None:
    empty = servers.database_url.replace("/postgres?", "/template1?", 1)
    found = await examined(given | {"WAYBILL_DATABASE_URL": empty})

    assert not found["migrations"].ok
    assert "python3 -m ops migrate" in (found["migrations"].mend or "")
    assert found["postgres"].ok
    assert "partitions" not in found


async def test_missing_partitions_are_found(given: dict[str, str], own_pool: asyncpg.Pool) -> None:
    for ahead, told in ((4, "made for 3 weeks ahead"), (0, "this week has no partitions")):
        monday = partitions.week_of(datetime.now(UTC)) + ahead * partitions.WEEK
        await own_pool.execute(f"DROP TABLE {partitions.partition_name('events', monday)}")
        found = (await examined(given))["partitions"]

        assert not found.ok
        assert found.found == told


async def test_an_overdue_queue_is_found(given: dict[str, str], own_pool: asyncpg.Pool) -> None:
    account = await make_account(own_pool)
    await queue_row(own_pool, account.id, due_in=timedelta(hours=1))
    assert (await examined(given))["queue"].found == "no delivery is overdue"
    await queue_row(own_pool, account.id, due_in=timedelta(minutes=-10))
    found = (await examined(given))["queue"]

    assert not found.ok
    assert found.found.startswith("1 deliveries are due, the oldest for 60")


async def test_shards_without_a_living_owner_are_found(given: dict[str, str], own_pool: asyncpg.Pool) -> None:
    variables = given | {"WAYBILL_SHARDS": "4"}
    never = (await examined(variables))["shards"]
    assert (never.ok, never.found) == (False, "0 of 4 owned by 0 mta processes")

    member = ids.uuid7()
    await own_pool.execute(
        "INSERT INTO shard_members (id, name, expires_at) VALUES ($1, 'mta-7', now() + interval '1 hour')", member
    )
    await own_pool.execute("INSERT INTO shard_owners (shard, owner) SELECT *, $1 FROM generate_series(0, 3)", member)
    assert (await examined(variables))["shards"].ok

    await own_pool.execute("UPDATE shard_owners SET owner = $1 WHERE shard = 2", ids.uuid7())
    dead = (await examined(variables))["shards"]
    assert (dead.ok, dead.found) == (False, "3 of 4 owned by 1 mta processes")

    await own_pool.execute("UPDATE shard_owners SET owner = $1", member)
    await own_pool.execute("UPDATE shard_members SET expires_at = now() - interval '1 minute'")
    late = (await examined(variables))["shards"]
    assert not late.ok
    assert "the lease of mta-7 has expired" in late.found


async def test_keys_sealed_under_another_pepper_are_found(given: dict[str, str], own_pool: asyncpg.Pool) -> None:
    account = await make_account(own_pool)
    await make_account(own_pool, verified=False)
    found = (await examined(given | {"WAYBILL_KEY_PEPPER": "another pepper, long enough"}))["signing keys"]

    assert not found.ok
    assert account.domain in found.found
    assert "WAYBILL_KEY_PEPPER" in (found.mend or "")


async def test_a_verified_domain_without_an_rsa_key_is_found(given: dict[str, str], own_pool: asyncpg.Pool) -> None:
    account = await make_account(own_pool)
    await own_pool.execute("UPDATE domain_keys SET status = 'retired' WHERE algorithm = 'rsa-sha256'")
    found = (await examined(given))["signing keys"]

    assert not found.ok
    assert account.domain in found.found


async def test_a_clock_that_is_off_is_found(given: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ops.doctor.database.clock.machine_now", lambda: datetime.now(UTC) + timedelta(minutes=5))
    found = (await examined(given))["clock"]

    assert not found.ok
    assert "300.0 s" in found.found


async def test_too_few_connections_left_are_found(given: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ops.doctor.database.MIN_CONNECTIONS_LEFT", 1_000)

    assert not (await examined(given))["connections"].ok


# -- Redis ------------------------------------------------------------------------------------


async def test_a_redis_that_evicts_is_found(given: dict[str, str], redis_url: str) -> None:
    client = connect(redis_url)
    assert (await examined(given))["redis memory"].ok
    await client.one("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    try:
        found = (await examined(given))["redis memory"]
    finally:
        await client.one("CONFIG", "SET", "maxmemory-policy", "noeviction")
        await client.aclose()

    assert (found.ok, found.found) == (False, "maxmemory-policy allkeys-lru")


async def test_a_redis_that_is_away_harms_no_mail(given: dict[str, str]) -> None:
    found = (await examined(given | {"WAYBILL_REDIS_URL": "redis://127.0.0.1:1"}))["redis"]

    assert not found.ok
    assert "mail is accepted" in (found.mend or "")


# -- the doors --------------------------------------------------------------------------------


@contextlib.contextmanager
def figures_served() -> Iterator[int]:
    assert figures.ACCEPTED is not None  # registered
    server, thread = prometheus_client.start_http_server(0, addr="127.0.0.1")
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


async def test_the_doors_of_a_running_service_are_tried(api_url: str, settings: Settings, tmp_path: Path) -> None:
    state = make_state(tmp_path / "state")
    variables = environ(state) | {
        name: text for name, text in to_environ(settings).items() if name.endswith(("_URL", "_PEPPER", "_SHARDS"))
    }
    variables["WAYBILL_API_PORT"] = str(urlsplit(api_url).port)
    async with Responder() as responder, Sink() as sink:
        variables["WAYBILL_SINK_PORT"] = str(sink.address[1])
        responder.set("mail.waybill.test", "MX", ["10 mx.waybill.test."])
        variables["WAYBILL_DNS_PORT"] = str(responder.address[1])
        with StateLock(state), figures_served() as port:
            variables["WAYBILL_METRICS_PORT"] = str(port)
            found = await examined(variables)

    assert found["api"].ok, found["api"]
    assert found["metrics"].ok
    assert found["dns"].ok
    assert found["sink"].ok
    assert "ports" not in found  # they are taken by the service itself


async def test_strangers_on_our_ports_are_not_taken_for_us(given: dict[str, str]) -> None:
    async def stranger(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi")
        await writer.drain()

    async with listening(stranger) as (_, port):
        variables = given | {f"WAYBILL_{name}_PORT": str(port) for name in ("API", "METRICS", "SINK", "SUBMISSION")}
        with StateLock(Path(given["WAYBILL_STATE"])):
            found = await examined(variables)

    assert [name for name in ("api", "metrics", "sink", "submission") if found[name].ok] == []


async def test_live_mode_without_a_certificate_says_that_nothing_can_be_submitted(given: dict[str, str]) -> None:
    with StateLock(Path(given["WAYBILL_STATE"])):
        found = await examined(given | {"WAYBILL_DELIVERY": "live"})

    assert not found["submission"].ok
    assert "WAYBILL_TLS_CERT" in (found["submission"].mend or "")


# -- the world --------------------------------------------------------------------------------


@pytest.fixture
async def live(given: dict[str, str]) -> AsyncIterator[tuple[dict[str, str], Responder]]:
    """Live mode in a world of our own, where all is well."""
    async with Responder() as world:
        world.set("mx.host.test", "A", ["192.0.2.25"])
        world.set("25.2.0.192.in-addr.arpa", "PTR", ["mx.host.test."])
        host, port = world.address
        yield given | {
            "WAYBILL_DELIVERY": "live", "WAYBILL_MAIL_HOST": "mx.host.test", "WAYBILL_DNS_SERVERS": f"{host}:{port}",
        }, world  # fmt: skip


async def test_a_live_host_with_names_that_lead_to_each_other(
    live: tuple[dict[str, str], Responder], own_pool: asyncpg.Pool
) -> None:
    account = await make_account(own_pool)
    found = await examined(live[0])

    assert found["dns"].ok
    assert account.domain in found["dns"].found
    assert found["mail host"].ok
    assert {question.rdtype for question in live[1].questions} >= {"MX", "TXT", "A", "AAAA", "PTR"}


async def test_without_an_account_the_mail_host_is_asked_for(live: tuple[dict[str, str], Responder]) -> None:
    assert "mx.host.test" in (await examined(live[0]))["dns"].found


async def test_a_mail_host_without_address_is_found(live: tuple[dict[str, str], Responder]) -> None:
    found = (await examined(live[0] | {"WAYBILL_MAIL_HOST": "nowhere.test"}))["mail host"]

    assert (found.ok, found.found) == (False, "nowhere.test has no address")
    assert "WAYBILL_MAIL_HOST" in (found.mend or "")


@pytest.mark.parametrize("reverse", [[], ["pool-25.isp.test."], ["elsewhere.test."]])
async def test_a_reverse_name_that_does_not_lead_back_is_found(
    live: tuple[dict[str, str], Responder], reverse: list[str]
) -> None:
    live[1].set("25.2.0.192.in-addr.arpa", "PTR", reverse)
    live[1].set("elsewhere.test", "A", ["192.0.2.99"])
    found = (await examined(live[0]))["mail host"]

    assert not found.ok
    assert "PTR" in (found.mend or "")
    assert "192.0.2.25" in (found.mend or "")


@pytest.mark.parametrize("name", ["bounces.mx.host.test", "*.in.mx.host.test"])
@pytest.mark.parametrize(
    ("records", "found"),
    [
        (["10 mx.host.test."], None),
        ([], "no record"),
        (["10 elsewhere.test."], "points to elsewhere.test"),
        (["10 mx.host.test.", "20 elsewhere.test."], "points to mx.host.test, elsewhere.test"),
    ],
)
async def test_names_that_receive_our_mail_lead_to_the_mail_host_alone(
    live: tuple[dict[str, str], Responder],
    name: str,
    records: list[str],
    found: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ops.doctor.names.token_hex", lambda size: "drawn")
    live[1].set(name.replace("*", "drawn"), "MX", records)
    mx = (await examined(live[0]))[f"MX of {name}"]

    assert mx.ok is (found is None)
    if found is not None:
        assert mx.found == found
        assert (mx.mend or "").startswith(f"Publish {name} MX 10 mx.host.test.")


async def test_a_resolver_that_does_not_answer_is_found(live: tuple[dict[str, str], Responder]) -> None:
    live[1].behave_under("host.test", DnsBehaviour(rcode="SERVFAIL"))
    found = await examined(live[0])

    assert not found["dns"].ok
    assert "SERVFAIL" in found["dns"].found
    assert "WAYBILL_DNS_SERVERS" in (found["dns"].mend or "")
