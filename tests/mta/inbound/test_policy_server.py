"""Certificates of policy hosts: got from a real ACME server (Pebble), renewed, kept sealed, and served by name."""

import asyncio
import json
import os
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiohttp
import asyncpg
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from msgspec import structs

from engine.base import clock, ids
from engine.base.settings import HostPort, Settings
from engine.receiving.certificates import renewal as certificates
from engine.receiving.certificates import rules
from engine.receiving.certificates.types import IssuedCertificate
from engine.receiving.mta_sts import policies as mta_sts
from engine.sending.domains.service import add_domain
from engine.store.postgres import open_pool
from loadtests.ports import reserve_port
from mta.inbound.policy_server import PolicyServer
from ops.local.dns import Responder
from tests.conftest import NewDatabase
from tests.harness.accounts import make_account
from tests.harness.patience import PATIENCE_S
from tests.harness.transport import Certified, authority

MAIL_HOST = "mail.waybill.test"
ROOT = authority()
PEBBLE = shutil.which("pebble")
needs_pebble = pytest.mark.skipif(PEBBLE is None, reason="no ACME test server: install Debian's package pebble")


class PolicyWorld:
    """A database to itself, a zone, and settings that use them."""

    def __init__(self, pool: asyncpg.Pool, settings: Settings, zone: Responder) -> None:
        self.pool = pool
        self.zone = zone
        self.settings = settings

    async def policy(self) -> str:
        """A verified domain with a policy whose alias leads here; returns its name."""
        name = f"{ids.encode(ids.uuid7())}.test"
        account = await make_account(self.pool)
        await add_domain(self.pool, self.settings, account.id, name, vouched=True)
        policy = await mta_sts.put_policy(self.pool, account.id, name, mode="testing", max_age_s=None)
        self.zone.set(f"mta-sts.{name}", "CNAME", [f"mta-sts.{MAIL_HOST}."])
        self.zone.set(f"_mta-sts.{name}", "TXT", [f"v=STSv1; id={policy.policy_id}"])
        await mta_sts.check_policy(self.pool, self.settings, account.id, name)
        return name


@pytest.fixture
async def world(settings: Settings, new_database: NewDatabase, tmp_path: Path) -> AsyncIterator[PolicyWorld]:
    pool = await open_pool(await new_database(), name="tests", largest=6)
    async with Responder() as zone:
        zone.set(f"mta-sts.{MAIL_HOST}", "A", ["127.0.0.1"])
        own = structs.replace(
            settings, dns_servers=(HostPort(*zone.address),), mail_host=MAIL_HOST, allow_private_mx=True,
            policy_port=reserve_port(), policy_tls_port=reserve_port(), policy_http_port=reserve_port(),
            tls_authorities=ROOT.pem(tmp_path), acme_authorities=ROOT.pem(tmp_path),
        )  # fmt: skip
        yield PolicyWorld(pool, own, zone)
    await pool.close()


@asynccontextmanager
async def serving(world: PolicyWorld) -> AsyncIterator[PolicyServer]:
    server = PolicyServer(world.pool, world.settings)
    await server.start("127.0.0.1")
    try:
        yield server
    finally:
        await server.stop()


@asynccontextmanager
async def acme_server(world: PolicyWorld, folder: Path, port: int | None = None) -> AsyncIterator[str]:
    """Pebble, which asks our own DNS server and our own challenge port; yields its directory's URL."""
    assert PEBBLE is not None
    port = port or reserve_port()
    own = ROOT.leaf("localhost")
    (folder / "cert.pem").write_bytes(own.certificate.public_bytes(Encoding.PEM))
    (folder / "key.pem").write_bytes(own.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    config = {
        "listenAddress": f"127.0.0.1:{port}", "managementListenAddress": f"127.0.0.1:{reserve_port()}",
        "certificate": str(folder / "cert.pem"), "privateKey": str(folder / "key.pem"),
        "httpPort": world.settings.policy_http_port, "tlsPort": reserve_port(), "ocspResponderURL": "",
    }  # fmt: skip
    (folder / "pebble.json").write_text(json.dumps({"pebble": config}))
    asked = ":".join(str(part) for part in world.zone.address)
    environ = os.environ | {"PEBBLE_VA_NOSLEEP": "1", "PEBBLE_WFE_NONCEREJECT": "0"}
    with (folder / "pebble.log").open("wb") as log:
        running = subprocess.Popen(
            [PEBBLE, "-config", str(folder / "pebble.json"), "-dnsserver", asked], stdout=log, stderr=log, env=environ
        )
        try:
            await _until_open(port)
            yield f"https://localhost:{port}/dir"
        finally:
            running.kill()
            running.wait()


async def _until_open(port: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.05)
                continue
            writer.close()
            return


def issued(leaf: Certified) -> IssuedCertificate:
    key = leaf.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return IssuedCertificate(key, leaf.certificate.public_bytes(Encoding.PEM).decode())


async def store(world: PolicyWorld, name: str, leaf: Certified) -> None:
    await certificates._want(world.pool)
    await certificates.save(world.pool, world.settings, f"mta-sts.{name}", issued(leaf))


async def fetch(world: PolicyWorld, host: str, *, trusted: ssl.SSLContext | None = None) -> tuple[int, str]:
    """GET the policy as a sender does, by the name of its host."""
    port = world.settings.policy_tls_port
    async with aiohttp.ClientSession() as session:
        url = f"https://127.0.0.1:{port}/.well-known/mta-sts.txt"
        context = trusted or ssl.create_default_context(cafile=str(world.settings.tls_authorities))
        async with session.get(url, headers={"Host": host}, ssl=context, server_hostname=host) as answer:
            return answer.status, await answer.text()


@pytest.mark.exhaustive
@needs_pebble
async def test_a_policy_host_gets_a_certificate_that_is_served_by_its_name(world: PolicyWorld, tmp_path: Path) -> None:
    name = await world.policy()
    async with serving(world) as server, acme_server(world, tmp_path) as directory:
        settings = structs.replace(world.settings, acme_directory=directory)
        got = await certificates.get_due(world.pool, settings)
        again = await certificates.get_due(world.pool, settings)
        await server.shelf.reload()
        untrusting = ssl.create_default_context()
        untrusting.check_hostname, untrusting.verify_mode = False, ssl.CERT_NONE  # Pebble's root is new at each start
        status, text = await fetch(world, f"mta-sts.{name}", trusted=untrusting)
        with pytest.raises(aiohttp.ClientError):
            await fetch(world, "mta-sts.other.test", trusted=untrusting)

    row = await world.pool.fetchrow("SELECT * FROM tls_certificates WHERE host = $1", f"mta-sts.{name}")
    assert row is not None
    assert (got, again, row["failures"], row["error"]) == (1, 0, 0, None)
    assert b"PRIVATE KEY" not in bytes(row["sealed_key"])
    assert clock.now() < row["due_at"] < row["not_after"]
    assert (status, text.splitlines()[:2]) == (200, ["version: STSv1", "mode: testing"])


@pytest.mark.exhaustive
@needs_pebble
async def test_an_account_that_the_authority_has_lost_is_registered_again(world: PolicyWorld, tmp_path: Path) -> None:
    """Pebble keeps its accounts in memory: after a restart it has lost them."""
    port = reserve_port()
    got: list[int] = []
    for _ in range(2):
        host = f"mta-sts.{await world.policy()}"
        async with serving(world), acme_server(world, tmp_path, port) as directory:
            settings = structs.replace(world.settings, acme_directory=directory)
            got.append(await certificates.get_due(world.pool, settings))
            row = await world.pool.fetchrow("SELECT * FROM tls_certificates WHERE host = $1", host)
            await world.pool.execute(
                "UPDATE tls_certificates SET due_at = now() - interval '1 minute' WHERE host = $1", host
            )
            got.append(await certificates.get_due(world.pool, settings))
    assert got == [1, 1, 0, 1]
    assert row is not None
    assert row["failures"] == 1
    assert "account" in row["error"].lower()


async def test_an_authority_that_does_not_answer_is_asked_again_later(world: PolicyWorld) -> None:
    name = await world.policy()
    settings = structs.replace(world.settings, acme_directory=f"https://localhost:{reserve_port()}/dir")
    assert await certificates.get_due(world.pool, settings) == 0
    row = await world.pool.fetchrow("SELECT * FROM tls_certificates WHERE host = $1", f"mta-sts.{name}")
    assert row is not None
    assert row["failures"] == 1
    assert row["error"]
    assert row["due_at"] > clock.now() + timedelta(minutes=4)


async def test_a_renewed_certificate_is_served_without_a_restart(world: PolicyWorld) -> None:
    name = await world.policy()
    host = f"mta-sts.{name}"
    old = ROOT.leaf(host, at=clock.now() + timedelta(days=1))
    await store(world, name, old)
    async with serving(world) as server:
        before = await _serial(world, host)
        new = ROOT.leaf(host)
        await store(world, name, new)
        await server.shelf.reload()
        after = await _serial(world, host)
        assert (await fetch(world, host))[0] == 200
    assert (before, after) == (old.certificate.serial_number, new.certificate.serial_number)


async def _serial(world: PolicyWorld, host: str) -> int:
    context = ssl.create_default_context(cafile=str(world.settings.tls_authorities))
    port: Any = world.settings.policy_tls_port
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=host)
    shown = writer.get_extra_info("peercert")["serialNumber"]
    writer.close()
    return int(shown, 16)


async def test_a_challenge_is_answered_while_it_lasts(world: PolicyWorld) -> None:
    await world.pool.execute(
        "INSERT INTO acme_challenges VALUES ('t1', 't1.key', now() + interval '1 minute'), ('t2', 'x', now())"
    )
    async with serving(world), aiohttp.ClientSession() as session:
        base = f"http://127.0.0.1:{world.settings.policy_http_port}"
        answers = []
        for path in ("/.well-known/acme-challenge/t1", "/.well-known/acme-challenge/t2", "/", "/t1"):
            async with session.get(base + path) as answer:
                answers.append((answer.status, await answer.text()))
    assert answers[0] == (200, "t1.key")
    assert [status for status, _ in answers[1:]] == [404, 404, 404]


def test_certificates_are_renewed_at_two_thirds_of_their_life_and_retried_ever_less_often() -> None:
    chain = issued(ROOT.leaf("a.test")).chain  # valid for 60 days, which began 30 days ago
    due = [rules.renew_at(chain, jitter=jitter) for jitter in (0.0, 1.0)]
    assert [round((rules.ends_at(chain) - one) / timedelta(days=1), 1) for one in due] == [20.0, 21.2]
    assert [rules.retry_after(n) for n in (1, 2, 3)] == [timedelta(minutes=m) for m in (5, 10, 20)]
    assert rules.retry_after(50) == timedelta(days=1)
