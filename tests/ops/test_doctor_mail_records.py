"""The doctor reads SPF, DKIM, DMARC and the certificate of the operator's hosts, and says which line to publish."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest
from msgspec import structs

from engine.base.settings import Settings
from engine.sending.domains import records
from engine.sending.domains import store as domains
from loadtests.ports import reserve_port
from ops.doctor import mail_records
from ops.local import certificate
from ops.local.dns import DnsBehaviour, Responder
from tests.harness.accounts import make_account
from tests.harness.inbound import receiving
from tests.ops.installation import environ, examined

HOST = "mx.host.test"


@pytest.fixture
async def live(own_database: str, redis_url: str, tmp_path: Path) -> AsyncIterator[tuple[dict[str, str], Responder]]:
    """Live mode in a world of our own, where all is well."""
    async with Responder() as world:
        world.set(HOST, "A", ["192.0.2.25"])
        world.set(HOST, "TXT", ['"v=spf1 a -all"'])
        world.set(f"bounces.{HOST}", "TXT", [f'"v=spf1 a:{HOST} -all"'])
        world.set(f"_dmarc.{HOST}", "TXT", ['"v=DMARC1; p=reject"'])
        host, port = world.address
        yield environ(
            tmp_path, WAYBILL_DATABASE_URL=own_database, WAYBILL_REDIS_URL=redis_url, WAYBILL_KEY_PEPPER="0" * 64,
            WAYBILL_DELIVERY="live", WAYBILL_MAIL_HOST=HOST, WAYBILL_DNS_SERVERS=f"{host}:{port}",
        ), world  # fmt: skip


async def test_records_as_they_should_be(live: tuple[dict[str, str], Responder]) -> None:
    found = await examined(live[0])

    assert [found[name].ok for name in (f"SPF of {HOST}", f"SPF of bounces.{HOST}", f"DMARC of {HOST}")] == [True] * 3
    assert found[f"MX of {HOST}"].ok  # its address takes the mail


@pytest.mark.parametrize("name", [HOST, f"bounces.{HOST}"])
@pytest.mark.parametrize(
    "texts", [[], ['"v=spf1 -all"'], ['"v=spf1 a:mx.host.test -all"', '"v=spf1 ?all"'], ['"v=spf1 oops -all"']]
)
async def test_a_source_address_that_fails_spf_is_found_with_the_record_to_publish(
    live: tuple[dict[str, str], Responder], name: str, texts: list[str]
) -> None:
    live[1].set(name, "TXT", texts)
    finding = (await examined(live[0]))[f"SPF of {name}"]

    assert not finding.ok
    assert "192.0.2.25" in finding.found
    assert (finding.mend or "").startswith(f'Publish {name} TXT "v=spf1 a:{HOST} -all"')


@pytest.mark.parametrize("texts", [[], ['"v=DMARC1"'], ['"v=DMARC1; p=none"', '"v=DMARC1; p=reject"']])
async def test_a_missing_or_ambiguous_dmarc_policy_is_found(
    live: tuple[dict[str, str], Responder], texts: list[str]
) -> None:
    live[1].set(f"_dmarc.{HOST}", "TXT", texts)
    finding = (await examined(live[0]))[f"DMARC of {HOST}"]

    assert not finding.ok
    assert f'_dmarc.{HOST} TXT "v=DMARC1; p=none"' in (finding.mend or "")


async def test_a_policy_above_the_mail_host_holds_for_it(live: tuple[dict[str, str], Responder]) -> None:
    live[1].set(f"_dmarc.{HOST}", "TXT", [])
    live[1].set("_dmarc.host.test", "TXT", ['"v=DMARC1; p=quarantine"'])

    assert (await examined(live[0]))[f"DMARC of {HOST}"].ok


async def test_name_servers_that_do_not_answer_are_named_instead_of_a_record(
    live: tuple[dict[str, str], Responder],
) -> None:
    live[1].behave_under(f"_dmarc.{HOST}", DnsBehaviour(rcode="SERVFAIL"))

    assert (await examined(live[0]))[f"DMARC of {HOST}"].mend == mail_records.REPEAT


async def test_the_key_of_the_services_own_mail_is_compared_with_dns(
    live: tuple[dict[str, str], Responder], own_pool: asyncpg.Pool
) -> None:
    account = await make_account(own_pool)
    await own_pool.execute(
        "INSERT INTO platform (account_id, sender) VALUES ($1, $2)", account.id, f"no-reply@{account.domain}"
    )
    (owner,) = await domains.OWNERS.fetch(own_pool, account.domain)
    (key,) = [one for one in await domains.PUBLISHED.fetch(own_pool, owner.id) if one.status == "active" and one.is_rsa]
    wanted = records.key_record(owner.name, key)

    without = (await examined(live[0]))[f"DKIM of {account.domain}"]
    live[1].set(wanted.host, "TXT", [f'"{wanted.value[:200]}" "{wanted.value[200:]}"'])
    published = (await examined(live[0]))[f"DKIM of {account.domain}"]

    assert (without.ok, published.ok) == (False, True)
    assert (without.mend or "").startswith(f'Publish {wanted.host} TXT "{wanted.value}"')


async def test_a_certificate_that_senders_refuse_is_found(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Senders that follow MTA-STS check it; here it is trusted once the machine trusts its issuer."""
    async with receiving(settings, tmp_path) as mx:
        path, key = await asyncio.to_thread(certificate.ensure, tmp_path, settings.mail_host)
        own = structs.replace(mx.settings, delivery="live", tls_cert=path, tls_key=key)
        own = structs.replace(own, mx_host="127.0.0.1")
        refused = await mail_records.certificate(own)
        monkeypatch.setenv("SSL_CERT_FILE", str(path))
        trusted = await mail_records.certificate(own)
        away = await mail_records.certificate(structs.replace(own, mx_port=reserve_port()))

    assert (refused.ok, trusted.ok, away.ok) == (False, True, False)
    assert "WAYBILL_TLS_CERT" in (refused.mend or "")
