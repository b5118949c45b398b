"""Transport security end to end: what the engine does, shows and counts, by what domains publish and servers show."""

import hashlib
from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from engine.store.database_errors import DatabaseUnavailable
from engine.store.postgres import open_pool
from engine.store.resolver import Resolver
from mta.outbound import deliver
from mta.outbound.sites import connections
from mta.outbound.tls.mta_sts_fetch import StsFetcher
from mta.outbound.tls.report_counts import KEEP, TlsReportCounts, TlsSession
from mta.smtp.client.tls_failures import TlsFailure, TlsFailureType
from ops.local.dns import DnsBehaviour
from tests.harness.outbound import CountingSink, World
from tests.harness.patience import PATIENCE_S
from tests.harness.transport import Certified, PolicyHost, policy_host, self_signed

LATER_S = (600.0,)  # a retry that no test waits for
DOMAIN, MX, SERVER = "secure.test", "mx.secure.test", "127.0.0.3"
BARE = ("PIPELINING",)


@pytest.fixture
async def policy(here: World, root: Certified, tmp_path: Path) -> AsyncIterator[PolicyHost]:
    """The policy host of DOMAIN, whose mail server is SERVER; `enforce` unless a test says otherwise."""
    async with policy_host(root, tmp_path, DOMAIN) as host:
        authorities = root.pem(tmp_path)

        def fetcher(resolver: Resolver) -> StsFetcher:
            return StsFetcher(resolver, may_dial=lambda _: True, authorities=authorities, port=host.port)

        here.fetcher = fetcher
        here.domain(DOMAIN, SERVER)
        here.dns.set(f"_mta-sts.{DOMAIN}", "TXT", ["v=STSv1; id=1;"])
        here.dns.set(f"mta-sts.{DOMAIN}", "A", ["127.0.0.1"])
        says(host, "enforce")
        yield host


def says(host: PolicyHost, mode: str, *patterns: str) -> None:
    lines = [f"mx: {pattern}" for pattern in patterns or (MX,)]
    host.policy("version: STSv1", f"mode: {mode}", *lines, "max_age: 86400")


async def secured(here: World, certified: Certified, folder: Path, address: str = SERVER, **how: Any) -> CountingSink:
    return await here.server(address, tls=certified.server(folder), **how)


async def detail(here: World, message: UUID, kind: str = "attempted") -> dict[str, Any]:
    return dict(await here.waybill(message))[kind]


async def counted(here: World, domain: str = DOMAIN) -> dict[tuple[str, str], int]:
    await here.mtas[-1].security.flush()
    rows = await here.pool.fetch("SELECT policy, result, sessions FROM tls_days WHERE domain = $1", domain)
    found: Counter[tuple[str, str]] = Counter()
    for row in rows:
        found[row["policy"], row["result"]] += row["sessions"]
    return found


# -- MTA-STS ---------------------------------------------------------------------------------------


async def test_enforced_mail_goes_to_a_server_that_proves_its_name(
    here: World, policy: PolicyHost, root: Certified, tmp_path: Path
) -> None:
    sink = await secured(here, root.leaf(MX), tmp_path)
    await here.live(tls_authorities=root.pem(tmp_path))
    messages = await here.send_many(5, lambda n: f"reader{n}@{DOMAIN}")
    await here.until_idle()

    assert {await here.status(message) for message in messages} == {"delivered"}
    assert {one.tls for one in sink.messages} == {"TLSv1.3"}
    for kind in ("attempted", "delivered"):
        tls = (await detail(here, messages[0], kind))["tls"]
        assert (tls["version"], tls["certificate"], tls["policy"]) == ("TLSv1.3", "verified", "MTA-STS")
        assert tls["cipher"]
    (counts,) = (await counted(here)).items()
    assert counts[0] == ("sts", "success")
    assert 1 <= counts[1] <= sink.connections  # a connection that found nothing left to deliver is not counted


@pytest.mark.parametrize("trouble", ["self-signed", "other name", "expired", "no starttls", "broken"])
async def test_enforced_mail_waits_and_never_goes_in_plaintext(
    here: World, policy: PolicyHost, root: Certified, tmp_path: Path, trouble: str
) -> None:
    certified, result = {
        "self-signed": (self_signed(MX), "certificate-not-trusted"),
        "other name": (root.leaf("mx.other.test"), "certificate-host-mismatch"),
        "expired": (root.leaf(MX, at=datetime.now(UTC)), "certificate-expired"),
        "no starttls": (None, "starttls-not-supported"),
        "broken": (root.leaf(MX), "validation-failure"),
    }[trouble]
    tls = None if certified is None else certified.server(tmp_path)
    sink = await here.server(SERVER, tls=tls)
    if trouble == "broken":
        sink.script("STARTTLS", raw=b"220 2.0.0 go\r\n")
    await here.live(tls_authorities=root.pem(tmp_path), retry_ladder_s=LATER_S)
    message = await here.send(f"ann@{DOMAIN}")
    await here.until_step(message, "deferred")

    deferred = await detail(here, message, "deferred")
    assert (deferred["class"], deferred["scope"]) == ("tls", "site")
    assert deferred["diagnostic"].startswith(f"{MX} does not meet MTA-STS: ")
    assert await here.status(message) == "sending"
    assert not [line for line in sink.commands if line.startswith("MAIL")]
    assert await counted(here) == {("sts", result): 1}


async def test_enforced_mail_that_never_finds_a_good_server_fails_and_does_not_bounce(
    here: World, policy: PolicyHost, root: Certified, tmp_path: Path
) -> None:
    await secured(here, self_signed(MX), tmp_path)
    await here.live(tls_authorities=root.pem(tmp_path), give_up_s=1.5)
    message = await here.send(f"ann@{DOMAIN}")
    await here.until_step(message, "failed")

    assert "bounced" not in await here.steps(message)
    assert await here.suppressed() == []


async def test_a_server_that_the_policy_does_not_name_is_passed_over(
    here: World, policy: PolicyHost, root: Certified, tmp_path: Path
) -> None:
    says(policy, "enforce", "*.good.test")
    here.dns.set(DOMAIN, "MX", ["10 mx.evil.test.", "20 a.b.good.test.", "30 mx.good.test."])
    for number, name in enumerate(("mx.evil.test", "a.b.good.test", "mx.good.test"), 4):
        here.dns.set(name, "A", [f"127.0.0.{number}"])
    strangers = [
        await secured(here, root.leaf("mx.evil.test", "a.b.good.test"), tmp_path, f"127.0.0.{n}") for n in (4, 5)
    ]
    good = await secured(here, root.leaf("mx.good.test"), tmp_path, "127.0.0.6")
    await here.live(tls_authorities=root.pem(tmp_path))
    message = await here.send(f"ann@{DOMAIN}")
    await here.until_step(message, "delivered")

    assert good.count == 1
    assert [sink.connections for sink in strangers] == [0, 0]
    assert (await detail(here, message))["mx"] == "mx.good.test"
    assert await counted(here) == {("sts", "success"): 1, ("sts", "validation-failure"): 2}


async def test_where_the_policy_names_no_server_nobody_is_asked(
    here: World, policy: PolicyHost, root: Certified, tmp_path: Path
) -> None:
    says(policy, "enforce", "mx.elsewhere.test")
    sink = await secured(here, root.leaf(MX), tmp_path)
    await here.live(tls_authorities=root.pem(tmp_path), retry_ladder_s=LATER_S)
    message = await here.send(f"ann@{DOMAIN}")
    await here.until_step(message, "deferred")

    assert sink.connections == 0
    deferred = await detail(here, message, "deferred")
    assert deferred["class"] == "tls"
    assert "not among the mail servers that the MTA-STS policy names" in deferred["diagnostic"]


@pytest.mark.parametrize(
    ("certificate", "result"), [("other", "certificate-host-mismatch"), (None, "starttls-not-supported")]
)
async def test_a_tested_policy_delivers_and_counts_what_would_have_failed(
    here: World, policy: PolicyHost, root: Certified, tmp_path: Path, certificate: str | None, result: str
) -> None:
    says(policy, "testing")
    tls = root.leaf("mx.other.test").server(tmp_path) if certificate else None
    sink = await here.server(SERVER, tls=tls)
    await here.live(tls_authorities=root.pem(tmp_path))
    message = await here.send(f"ann@{DOMAIN}")
    await here.until_step(message, "delivered")

    assert sink.count == 1
    assert await counted(here) == {("sts", result): 1}


async def test_a_tested_policy_counts_strangers_among_the_servers_and_good_sessions(
    here: World, policy: PolicyHost, root: Certified, tmp_path: Path
) -> None:
    says(policy, "testing", "mx.elsewhere.test")
    await secured(here, root.leaf(MX), tmp_path)
    mta = await here.live(tls_authorities=root.pem(tmp_path))
    await here.until_step(await here.send(f"ann@{DOMAIN}"), "delivered")
    assert await counted(here) == {("sts", "validation-failure"): 1}
    await mta.stop()
    here.mtas.remove(mta)
    await here.pool.execute("DELETE FROM sts_policies")
    says(policy, "testing")
    await here.live(tls_authorities=root.pem(tmp_path))
    await here.until_step(await here.send(f"bob@{DOMAIN}"), "delivered")
    assert await counted(here) == {("sts", "validation-failure"): 1, ("sts", "success"): 1}


async def test_a_policy_that_cannot_be_fetched_leaves_mail_opportunistic_and_is_counted(
    here: World, policy: PolicyHost, tmp_path: Path
) -> None:
    policy.response = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
    sink = await secured(here, self_signed(MX), tmp_path)
    await here.live()
    message = await here.send(f"ann@{DOMAIN}")
    await here.until_step(message, "delivered")

    assert sink.messages[0].tls == "TLSv1.3"
    assert "policy" not in (await detail(here, message))["tls"]
    assert await counted(here) == {("sts", "sts-policy-fetch-error"): 1}


async def test_a_policy_seen_once_rules_after_a_restart_with_dns_and_policy_host_away(
    here: World, policy: PolicyHost, root: Certified, tmp_path: Path
) -> None:
    await secured(here, self_signed(MX), tmp_path)
    mta = await here.live(tls_authorities=root.pem(tmp_path), retry_ladder_s=LATER_S)
    await here.until_step(await here.send(f"ann@{DOMAIN}"), "deferred")
    await mta.stop()
    here.mtas.remove(mta)
    here.dns.behave(f"_mta-sts.{DOMAIN}", DnsBehaviour(rcode="SERVFAIL"))
    policy.response = b""
    await here.live(tls_authorities=root.pem(tmp_path), retry_ladder_s=LATER_S)
    message = await here.send(f"bob@{DOMAIN}")
    await here.until_step(message, "deferred")

    assert (await detail(here, message, "deferred"))["class"] == "tls"
    assert len(policy.requests) == 1


async def test_the_policy_of_one_domain_says_nothing_about_anothers_connections(
    here: World, policy: PolicyHost, root: Certified, tmp_path: Path
) -> None:
    here.domain("open.test", SERVER, mx=MX)
    sink = await secured(here, self_signed(MX), tmp_path)
    await here.live(tls_authorities=root.pem(tmp_path), retry_ladder_s=LATER_S)
    free = await here.send("ann@open.test")
    await here.until_step(free, "delivered")  # its connection stays open
    bound = await here.send(f"bob@{DOMAIN}")
    await here.until_step(bound, "deferred")
    again = await here.send("cyd@open.test")
    await here.until_step(again, "delivered")

    assert [one.recipients for one in sink.messages] == [("ann@open.test",), ("cyd@open.test",)]
    assert (await detail(here, again))["tls"]["certificate"] == "unverified: self-signed"
    assert await counted(here, "open.test") == {}


async def test_domains_with_equal_policies_on_one_server_share_its_connections(
    here: World, policy: PolicyHost, root: Certified, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliver, "IDLE_S", PATIENCE_S)  # a busy machine may pause for longer than a connection waits
    here.dns.set("second.test", "MX", [f"10 {MX}."])
    await here.pool.execute(
        "INSERT INTO sts_policies VALUES ('second.test', '1', $1, now(), now() + interval '1 day')",
        f"version: STSv1\nmode: enforce\nmx: {MX}\nmax_age: 86400",
    )
    sink = await secured(here, root.leaf(MX), tmp_path)
    await here.live(tls_authorities=root.pem(tmp_path), site_connections=1)
    await here.send_many(20, lambda n: f"reader{n}@{(DOMAIN, 'second.test')[n % 2]}")
    await here.until_idle()

    assert (sink.count, sink.connections) == (20, 1)
    assert await counted(here) == {("sts", "success"): 1}
    assert await counted(here, "second.test") == {("sts", "success"): 1}


async def test_local_mode_asks_nobody_for_policies(here: World, policy: PolicyHost) -> None:
    await here.server(SERVER)
    await here.mta()
    await here.until_step(await here.send(f"ann@{DOMAIN}"), "delivered")

    assert policy.requests == []
    assert not [question for question in here.dns.questions if question.rdtype in ("TXT", "TLSA")]


# -- DANE ------------------------------------------------------------------------------------------


def sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


async def test_dane_trusts_the_certificate_in_dns_and_goes_before_mta_sts(
    here: World, policy: PolicyHost, root: Certified, tmp_path: Path
) -> None:
    says(policy, "enforce", "mx.elsewhere.test")
    server = self_signed("anything.test")
    sink = await secured(here, server, tmp_path)
    here.dns.signed.add(DOMAIN)
    here.dns.tlsa(MX, here.settings.sink_port, (3, 1, 1, sha256(server.public_key)))
    await here.live(dnssec_trusted=True, tls_authorities=root.pem(tmp_path))
    message = await here.send(f"ann@{DOMAIN}")
    await here.until_step(message, "delivered")

    tls = (await detail(here, message))["tls"]
    assert (tls["certificate"], tls["policy"]) == ("verified: dane-ee", "DANE")
    assert sink.count == 1
    assert await counted(here) == {("tlsa", "success"): 1}


@pytest.mark.parametrize("trouble", ["other key", "no starttls", "servfail"])
async def test_dane_that_fails_defers_although_mta_sts_would_be_content(
    here: World, policy: PolicyHost, root: Certified, tmp_path: Path, trouble: str
) -> None:
    tls = None if trouble == "no starttls" else root.leaf(MX).server(tmp_path)
    sink = await here.server(SERVER, tls=tls)
    here.dns.signed.add(DOMAIN)
    here.dns.tlsa(MX, here.settings.sink_port, (3, 1, 1, b"x" * 32))
    if trouble == "servfail":
        here.dns.behave(f"_{here.settings.sink_port}._tcp.{MX}", DnsBehaviour(rcode="SERVFAIL"))
    await here.live(dnssec_trusted=True, tls_authorities=root.pem(tmp_path), retry_ladder_s=LATER_S)
    message = await here.send(f"ann@{DOMAIN}")
    await here.until_step(message, "deferred")

    deferred = await detail(here, message, "deferred")
    assert deferred["class"] == "tls"
    assert "does not meet DANE" in deferred["diagnostic"]
    assert sink.count == 0
    result = {"other key": "validation-failure", "no starttls": "starttls-not-supported", "servfail": "dnssec-invalid"}
    assert await counted(here) == {("tlsa", result[trouble]): 1}


async def test_a_host_whose_tlsa_look_up_fails_is_passed_over_for_the_next(here: World, tmp_path: Path) -> None:
    server = self_signed(MX)
    good = await secured(here, server, tmp_path)
    bad = await secured(here, server, tmp_path, "127.0.0.4")
    here.dns.set(DOMAIN, "MX", [f"10 bad.{DOMAIN}.", f"20 {MX}."])
    here.dns.set(f"bad.{DOMAIN}", "A", ["127.0.0.4"])
    here.dns.set(MX, "A", [SERVER])
    here.dns.signed.add(DOMAIN)
    here.dns.behave(f"_{here.settings.sink_port}._tcp.bad.{DOMAIN}", DnsBehaviour(rcode="SERVFAIL"))
    here.dns.tlsa(MX, here.settings.sink_port, (3, 1, 1, sha256(server.public_key)))
    await here.live(dnssec_trusted=True)
    await here.until_step(await here.send(f"ann@{DOMAIN}"), "delivered")

    assert (good.count, bad.connections) == (1, 0)


async def test_tlsa_records_that_nobody_can_use_still_forbid_plaintext(here: World, tmp_path: Path) -> None:
    here.domain(DOMAIN, SERVER)
    here.dns.signed.add(DOMAIN)
    here.dns.tlsa(MX, here.settings.sink_port, (0, 0, 1, b"x" * 32))
    sink = await secured(here, self_signed("anything.test"), tmp_path)
    await here.live(dnssec_trusted=True, retry_ladder_s=LATER_S)
    await here.until_step(await here.send(f"ann@{DOMAIN}"), "delivered")
    sink.tls = None
    await sink.stop()
    await here.server(SERVER)
    message = await here.send(f"bob@{DOMAIN}")
    await here.until_step(message, "deferred")

    assert (await detail(here, message, "deferred"))["class"] == "tls"
    assert await counted(here) == {("tlsa", "tlsa-invalid"): 1, ("tlsa", "starttls-not-supported"): 1}


# -- without a policy --------------------------------------------------------------------------------


async def test_the_waybill_says_why_mail_went_in_plaintext(here: World) -> None:
    bare = await here.server(SERVER, extensions=BARE)
    broken = await here.server("127.0.0.4", extensions=(*BARE, "STARTTLS"))
    broken.script("STARTTLS", raw=b"220 2.0.0 go\r\n")
    refusing = await here.server("127.0.0.5", extensions=(*BARE, "STARTTLS"))
    refusing.script("STARTTLS", "454 4.7.0 not today")
    for name, address in (("bare", SERVER), ("broken", "127.0.0.4"), ("refusing", "127.0.0.5")):
        here.domain(f"{name}.test", address)
    await here.live()
    first = [await here.send(f"ann@{name}.test") for name in ("bare", "broken", "refusing")]
    for message in first:
        await here.until_step(message, "delivered")
    second = await here.send("bob@broken.test")
    await here.until_step(second, "delivered")
    here.domain("third.test", "127.0.0.4", mx="mx.third.test")
    third = await here.send("cyd@third.test")
    await here.until_step(third, "delivered")

    why = [(await detail(here, message))["plaintext"] for message in first]
    assert why[0] == "the server does not offer STARTTLS"
    assert why[1].startswith("TLS failed just before: handshake failed: ")
    assert why[2] == "the server refuses STARTTLS: 454 4.7.0 not today"
    assert (await detail(here, third))["plaintext"].startswith("TLS failed at 20")
    assert {(await detail(here, message))["tls"] for message in (*first, second, third)} == {None}
    assert (bare.count, broken.count, refusing.count) == (1, 3, 1)
    assert list(broken.commands).count("STARTTLS") == 1


async def test_a_server_with_broken_tls_is_asked_for_it_again_later(
    here: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    here.domain(DOMAIN, SERVER)
    sink = await secured(here, self_signed(MX), tmp_path)
    sink.script("STARTTLS", raw=b"220 2.0.0 go\r\n", times=1)
    await here.live(messages_per_connection=1)
    for number in range(2):
        await here.until_step(await here.send(f"reader{number}@{DOMAIN}"), "delivered")
    monkeypatch.setattr("engine.base.clock._ahead_us", lambda: round(connections.BROKEN_TLS_S * 1e6))
    await here.until_step(await here.send(f"late@{DOMAIN}"), "delivered")

    assert [one.tls for one in sink.messages] == [None, None, "TLSv1.3"]


async def test_what_is_remembered_of_broken_servers_is_bounded(here: World) -> None:
    known = connections.SiteConnections(here.settings)
    for number in range(connections._MAX_BROKEN + 1):
        known._remember_broken(f"ip{number}", "broken")
    assert len(known._broken_tls) == connections._MAX_BROKEN
    assert known._known_broken("ip0") == ""
    assert "broken" in known._known_broken(f"ip{connections._MAX_BROKEN}")


async def test_a_session_is_resumed_on_the_next_connection(here: World, tmp_path: Path) -> None:
    here.domain(DOMAIN, SERVER)
    await secured(here, self_signed(MX), tmp_path)
    await here.live(site_connections=1, messages_per_connection=1)
    first, second = await here.send(f"ann@{DOMAIN}"), await here.send(f"bob@{DOMAIN}")
    await here.until_idle()

    resumed = [(await detail(here, message))["tls"].get("resumed", False) for message in (first, second)]
    assert sorted(resumed) == [False, True]


async def test_a_busy_server_at_starttls_is_not_asked_in_plaintext(here: World, tmp_path: Path) -> None:
    here.domain(DOMAIN, SERVER)
    sink = await secured(here, self_signed(MX), tmp_path)
    sink.script("STARTTLS", "421 4.3.2 too busy", times=1)
    await here.live()
    message = await here.send(f"ann@{DOMAIN}")
    await here.until_step(message, "delivered")

    assert [one.tls for one in sink.messages] == ["TLSv1.3"]
    assert "deferred" in await here.steps(message)


# -- counting ----------------------------------------------------------------------------------------


async def test_counts_of_processes_add_up_and_old_ones_are_deleted(here: World) -> None:
    day = datetime(2026, 11, 20, 23, 59, tzinfo=UTC)
    reports = [TlsReportCounts(here.pool, lambda: day) for _ in range(2)]
    fault = TlsFailure(TlsFailureType.EXPIRED, "outside its dates")
    for report in reports:
        for _ in range(3):
            report.count("a.test", (TlsSession("sts", "mx.a.test", "192.0.2.1"),))
        report.count("a.test", (TlsSession("sts", "mx.a.test", "192.0.2.2", fault),))
        await report.flush()
        await report.flush()
    rows = await here.pool.fetch("SELECT * FROM tls_days ORDER BY result")
    assert [tuple(row) for row in rows] == [
        (date(2026, 11, 20), "a.test", "sts", "certificate-expired", "mx.a.test", "192.0.2.2", "outside its dates", 2),
        (date(2026, 11, 20), "a.test", "sts", "success", "mx.a.test", "192.0.2.1", "", 6),
    ]
    await TlsReportCounts(here.pool, lambda: day + KEEP).forget()
    assert await here.pool.fetchval("SELECT count(*) FROM tls_days") == 2
    await TlsReportCounts(here.pool, lambda: day + KEEP * 2).forget()
    assert await here.pool.fetchval("SELECT count(*) FROM tls_days") == 0


async def test_counts_wait_in_memory_while_postgres_is_away(here: World) -> None:
    assert here.settings.database_url is not None
    away = await open_pool(here.settings.database_url, name="away", largest=1)
    report = TlsReportCounts(away)
    session = TlsSession("tlsa", "mx.a.test", "192.0.2.1")
    report.count("a.test", (session,))
    await away.close()
    with pytest.raises(DatabaseUnavailable):
        await report.flush()
    report.count("a.test", (session,))
    report._pool = here.pool
    await report.flush()
    assert await here.pool.fetchval("SELECT sessions FROM tls_days") == 2
