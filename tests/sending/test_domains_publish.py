"""Publishing DNS records through Cloudflare: writes, untouched records, and server errors."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Sequence

import asyncpg
import msgspec
import pytest

from engine.base import clock, ids
from engine.base.errors import ErrorType, Refusal
from engine.base.secrets import DerivedKey
from engine.base.settings import Settings
from engine.sending.domains import cloudflare, publishing, records, store
from engine.sending.domains.publish_dns import SPREAD, DnsPublication, Written, _summed_up, forget_token, publish_dns
from engine.sending.domains.publishing import ZoneRecord, quoted, unquoted
from engine.sending.domains.types import DomainKeyRow, DomainRow, MailHostIdentity, WantedRecord
from ops.local.dns import Responder
from tests.harness.accounts import TestAccount
from tests.harness.cloudflare import READ_ONLY, TOKEN, CloudflareServer, Mood
from tests.harness.domains import Place, new_name
from tests.harness.patience import PATIENCE_S

OPTIONAL = 8  # records beside the keys, of which the two of the bounce domain lie outside of a customer's zone


@pytest.fixture
async def server() -> AsyncIterator[CloudflareServer]:
    async with CloudflareServer() as running:
        yield running


@pytest.fixture
async def place(pool: asyncpg.Pool, settings: Settings, server: CloudflareServer) -> AsyncIterator[Place]:
    async with Responder() as zone:
        yield Place(pool, msgspec.structs.replace(settings, cloudflare_url=server.url), zone)


async def published(
    place: Place, account: TestAccount, domain: DomainRow, token: str | None = TOKEN
) -> dict[tuple[str, str], Written]:
    done = await publish_dns(place.pool, place.settings, account.id, domain.id, token)
    return {one.wanted.place: one for one in done.records}


async def refusal(place: Place, account: TestAccount, domain: DomainRow, token: str | None = TOKEN) -> Refusal:
    with pytest.raises(Refusal) as caught:
        await publish_dns(place.pool, place.settings, account.id, domain.id, token)
    return caught.value


# -- what is written -------------------------------------------------------------------------------------------


async def test_all_records_of_the_zone_are_published_and_a_second_time_changes_nothing(
    place: Place, server: CloudflareServer
) -> None:
    account = await place.account()
    domain = await place.add(account, new_name())
    zone = server.zone(domain.name)
    first = await published(place, account, domain)
    written = server.calls()["POST"]
    second = await published(place, account, domain, None)

    inside = [one for one in await place.wanted(domain) if one.host.endswith(domain.name)]
    assert len(inside) == 4 + OPTIONAL - 2
    assert [one.wanted for one in first.values()] == inside
    assert {one.outcome for one in first.values()} == {"created"}
    assert {one.outcome for one in second.values()} == {"unchanged"}
    assert server.calls()["POST"] == written == len(inside)
    held = server.held(zone)
    for one in inside:
        (content,) = held[one.place]
        assert unquoted(content) == (one.value.split()[1] if one.type == "MX" else one.value)
    (mx,) = [one for one in server.records[zone] if one["type"] == "MX"]
    assert mx["priority"] == 10
    assert {one["comment"] for one in server.records[zone]} == {"Waybill"}
    assert not [one for one in server.records[zone] if one["proxied"]]


async def test_what_was_published_makes_the_domain_verified(place: Place, server: CloudflareServer) -> None:
    account = await place.account()
    domain = await place.add(account, new_name())
    zone = server.zone(domain.name)
    await published(place, account, domain)
    for record in server.records[zone]:
        content = unquoted(record["content"]) if record["type"] == "TXT" else f"{record['content']}."
        value = f"{record['priority']} {content}" if record["type"] == "MX" else content
        place.zone.set(record["name"], record["type"], [value])
    due = await place.pool.fetchval("SELECT check_at FROM domains WHERE id = $1", domain.id)
    checked = await place.verify(account, domain)

    assert due <= clock.now() + SPREAD
    assert checked.domain.status == "verified"
    outside = {("TXT", "bounces.mail.waybill.test"), ("MX", "bounces.mail.waybill.test")}
    assert {one.wanted.place for one in checked.records if one.finding.status != "ok"} == outside


async def test_the_zone_is_found_above_the_name(place: Place, server: CloudflareServer) -> None:
    account = await place.account()
    above = new_name()
    domain = await place.add(account, f"mail.shop.{above}")
    zone = server.zone(above)
    done = await publish_dns(place.pool, place.settings, account.id, domain.id, TOKEN)

    assert done.zone == above
    assert ("TXT", f"wb1._domainkey.mail.shop.{above}") in server.held(zone)
    asked = [path for _, path in server.requests if "/zones?" in path]
    assert [path.partition("name=")[2].partition("&")[0] for path in asked] == [domain.name, f"shop.{above}", above]


async def test_the_nearest_zone_takes_the_records(place: Place, server: CloudflareServer) -> None:
    account = await place.account()
    above = new_name()
    far, near = server.zone(above), server.zone(f"shop.{above}")
    await published(place, account, await place.add(account, f"mail.shop.{above}"))

    assert server.records[near]
    assert not server.records[far]


async def test_an_operator_who_sends_from_the_mail_hosts_own_zone_has_the_bounce_domain_published(
    place: Place, server: CloudflareServer
) -> None:
    above = new_name()
    place.settings = msgspec.structs.replace(place.settings, mail_host=f"mail.{above}")
    account = await place.account()
    domain = await place.add(account, above)
    zone = server.zone(above)
    await published(place, account, domain)

    held = server.held(zone)
    assert held["TXT", f"bounces.mail.{above}"] == [f'"v=spf1 a:mail.{above} -all"']
    assert held["MX", f"bounces.mail.{above}"] == [f"mail.{above}"]


async def test_a_key_of_ours_that_is_out_of_date_is_brought_up_to_date(place: Place, server: CloudflareServer) -> None:
    account = await place.account()
    domain = await place.add(account, new_name())
    zone = server.zone(domain.name)
    old = server.put(zone, "TXT", f"wb1._domainkey.{domain.name}", '"v=DKIM1; k=rsa; p=OLD"')
    done = await published(place, account, domain)

    assert done["TXT", f"wb1._domainkey.{domain.name}"].outcome == "updated"
    assert unquoted(old["content"]) == (await place.keys(domain))["wb1"].public_txt
    assert server.calls()["PATCH"] == 1


async def test_what_others_put_there_is_left_alone_and_reported(place: Place, server: CloudflareServer) -> None:
    account = await place.account()
    domain = await place.add(account, new_name())
    zone = server.zone(domain.name)
    server.put(zone, "TXT", f"_dmarc.{domain.name}", "v=DMARC1; p=reject; rua=mailto:me@example.org")
    server.put(zone, "MX", domain.name, "mx.elsewhere.test", priority=5)
    server.put(zone, "TXT", domain.name, "v=spf1 include:elsewhere.test -all")
    server.put(zone, "TXT", f"_smtp._tls.{domain.name}", "v=TLSRPTv1; rua=mailto:tls@example.org")
    server.put(zone, "TXT", f"_mta-sts.{domain.name}", "v=STSv1; id=1")
    server.put(zone, "CNAME", f"mta-sts.{domain.name}", "pages.example")
    server.put(zone, "CNAME", f"wb2._domainkey.{domain.name}", "keys.example")
    before = [dict(one) for one in server.records[zone]]
    done = await published(place, account, domain)

    conflicts = {place_: one.reason or "" for place_, one in done.items() if one.outcome == "conflict"}
    assert set(conflicts) == {
        ("TXT", f"_dmarc.{domain.name}"), ("MX", domain.name), ("TXT", f"_smtp._tls.{domain.name}"),
        ("TXT", f"_mta-sts.{domain.name}"), ("CNAME", f"mta-sts.{domain.name}"),
        ("TXT", f"wb2._domainkey.{domain.name}"),
    }  # fmt: skip
    assert "add mailto:dmarc+" in conflicts["TXT", f"_dmarc.{domain.name}"]
    assert "only if" in conflicts["MX", domain.name]
    assert "Remove" in conflicts["CNAME", f"mta-sts.{domain.name}"]
    assert [one for one in server.records[zone] if one["id"] in {kept["id"] for kept in before}] == before
    assert done["TXT", f"wb1._domainkey.{domain.name}"].outcome == "created"


async def test_a_policy_above_is_not_weakened_by_one_of_ours(place: Place, server: CloudflareServer) -> None:
    account = await place.account()
    above = new_name()
    zone = server.zone(above)
    server.put(zone, "TXT", f"_dmarc.{above}", "v=DMARC1; p=reject")
    done = await published(place, account, await place.add(account, f"news.{above}"))

    one = done["TXT", f"_dmarc.news.{above}"]
    assert (one.outcome, f"_dmarc.{above}" in (one.reason or "")) == ("unchanged", True)
    assert ("TXT", f"_dmarc.news.{above}") not in server.held(zone)


async def test_pages_of_records_are_read_to_the_end(place: Place, server: CloudflareServer) -> None:
    account = await place.account()
    domain = await place.add(account, new_name())
    zone = server.zone(domain.name)
    server.page_size = 2
    for number in range(5):
        server.put(zone, "MX", domain.name, f"mx{number}.elsewhere.test", priority=number)
    server.put(zone, "MX", domain.name, "mail.waybill.test", priority=50)
    done = await published(place, account, domain)

    assert done["MX", domain.name].outcome == "unchanged"


async def test_two_who_publish_at_once_leave_one_of_each(place: Place, server: CloudflareServer) -> None:
    account = await place.account()
    domain = await place.add(account, new_name())
    zone = server.zone(domain.name)
    both = await asyncio.gather(published(place, account, domain), published(place, account, domain))

    assert {one.outcome for done in both for one in done.values()} <= {"created", "unchanged"}
    assert all(len(contents) == 1 for contents in server.held(zone).values())


async def test_a_rotation_needs_no_second_token(place: Place, server: CloudflareServer) -> None:
    account = await place.account()
    domain = await place.add(account, new_name())
    zone = server.zone(domain.name)
    await published(place, account, domain)
    await place.pool.execute(
        "UPDATE domain_keys SET public_txt = 'v=DKIM1; k=rsa; p=NEW', status = 'pending'"
        " WHERE domain_id = $1 AND selector = 'wb2'",
        domain.id,
    )
    done = await published(place, account, domain, None)

    assert {place_: one.outcome for place_, one in done.items() if one.outcome != "unchanged"} == {
        ("TXT", f"wb2._domainkey.{domain.name}"): "updated"
    }
    assert server.held(zone)["TXT", f"wb2._domainkey.{domain.name}"] == ['"v=DKIM1; k=rsa; p=NEW"']


# -- the token ---------------------------------------------------------------------------------------------------


async def test_a_token_is_kept_sealed_and_forgotten_on_demand(place: Place, server: CloudflareServer) -> None:
    account = await place.account()
    domain = await place.add(account, new_name())
    server.zone(domain.name)
    none_yet = await refusal(place, account, domain, None)
    await published(place, account, domain)
    await published(place, account, domain)
    sealed = await place.pool.fetchval("SELECT sealed_token FROM cloudflare_tokens WHERE account_id = $1", account.id)
    await forget_token(place.pool, account.id)
    await forget_token(place.pool, account.id)
    gone = await refusal(place, account, domain, None)

    assert (none_yet.kind, none_yet.fields) == (ErrorType.INVALID_REQUEST, {"field": "token"})
    assert TOKEN.encode() not in sealed
    assert gone.fields == {"field": "token"}
    assert await place.events(account, "cloudflare.") == [
        ("cloudflare.connected", {"zone": domain.name}),
        ("cloudflare.disconnected", {}),
    ]
    ((_, written),) = await place.events(account, "domain.dns_published")  # what was there already is not told again
    assert (written["name"], written["zone"]) == (domain.name, domain.name)
    assert {"type": "TXT", "host": f"wb1._domainkey.{domain.name}", "outcome": "created"} in written["records"]


async def test_one_accounts_token_is_not_anothers(place: Place, server: CloudflareServer) -> None:
    first, second = await place.account(), await place.account()
    domain = await place.add(first, new_name())
    server.zone(domain.name)
    await published(place, first, domain)
    other = await place.add(second, domain.name)

    assert (await refusal(place, second, other, None)).fields == {"field": "token"}
    await place.pool.execute(
        "INSERT INTO cloudflare_tokens SELECT $2, sealed_token FROM cloudflare_tokens WHERE account_id = $1",
        first.id, second.id,
    )  # fmt: skip
    pepper = place.settings.pepper
    assert await store.read_token(place.pool, second.id, pepper=pepper) is None  # sealed to the account


@pytest.mark.parametrize(
    ("token", "reason"),
    [("x" * 40, "Invalid access token"), ("short", "Invalid request headers"), (READ_ONLY, "Authentication error")],
)
async def test_a_token_that_is_refused_is_a_400_with_the_reason_and_is_not_kept(
    place: Place, server: CloudflareServer, token: str, reason: str
) -> None:
    account = await place.account()
    domain = await place.add(account, new_name())
    server.zone(domain.name)
    refused = await refusal(place, account, domain, token)

    assert (refused.status, refused.fields) == (400, {"field": "token"})
    assert reason in refused.message
    assert await place.events(account, "cloudflare.") == []
    assert await place.pool.fetchval("SELECT count(*) FROM cloudflare_tokens WHERE account_id = $1", account.id) == 0


async def test_a_token_that_sees_another_zone_is_told_what_it_lacks(place: Place, server: CloudflareServer) -> None:
    account = await place.account()
    domain = await place.add(account, new_name())
    server.zone("elsewhere.test")
    refused = await refusal(place, account, domain)

    assert (refused.status, refused.fields) == (400, {"field": "token"})
    assert domain.name in refused.message
    assert "DNS Edit" in refused.message


async def test_the_token_goes_into_no_log_and_no_answer(
    place: Place, server: CloudflareServer, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    account = await place.account()
    domain = await place.add(account, new_name())
    server.zone(domain.name)
    echo = b'{"success":false,"errors":[{"code":1,"message":"what is ' + TOKEN.encode() + b'?"}],"result":null}'
    server.mood = Mood(status=400, body=echo)
    refused = await refusal(place, account, domain)
    server.mood = None
    done = await published(place, account, domain)

    assert TOKEN not in refused.message
    assert "what is …?" in refused.message
    assert TOKEN not in caplog.text + "".join(capsys.readouterr())
    assert TOKEN not in str(done)
    assert {headers["Authorization"] for headers in server.headers} == {f"Bearer {TOKEN}"}


# -- moods -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mood", "retry_after_s"),
    [
        (Mood(status=429, headers={"Retry-After": "7"}), 7),
        (Mood(status=429, headers={"Retry-After": "100000"}), cloudflare.MAX_WAIT_S),
        (Mood(status=429, headers={"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}), 30),
        (Mood(status=500), 30),
        (Mood(status=502, body=b"<html>bad gateway</html>"), 30),
        (Mood(status=200, body=b"<html>hello</html>"), 30),
        (Mood(status=200, body=b"[" * 100_000), 30),
        (Mood(status=200, body=b'{"success": true, "result": {"id": 7}}'), 30),
        (Mood(status=200, body=b'{"success": true, "result": [{"id": 7, "name": null}]}'), 30),
        (Mood(status=200, body=b'{"success": "yes"}'), 30),
        (Mood(status=200, body=b"\xff\xfe"), 30),
        (Mood(status=200, body=b" " * (cloudflare.MAX_BYTES + 1)), 30),
    ],
)
async def test_an_outage_of_theirs_is_a_503_and_nothing_is_kept(
    place: Place, server: CloudflareServer, mood: Mood, retry_after_s: int
) -> None:
    account = await place.account()
    domain = await place.add(account, new_name())
    server.zone(domain.name)
    server.mood = mood
    refused = await refusal(place, account, domain)

    assert (refused.kind, refused.retry_after_s) == (ErrorType.UNAVAILABLE, retry_after_s)
    assert await place.events(account, "cloudflare.") == []


async def test_a_redirect_is_not_followed_with_the_token(place: Place, server: CloudflareServer) -> None:
    account = await place.account()
    domain = await place.add(account, new_name())
    async with CloudflareServer() as elsewhere:
        server.mood = Mood(status=302, headers={"Location": elsewhere.url})
        refused = await refusal(place, account, domain)

        assert refused.status == 503
        assert elsewhere.requests == []


async def test_a_server_that_does_not_answer_holds_nobody_for_long(
    place: Place, server: CloudflareServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cloudflare, "CALL_S", 0.5)
    account = await place.account()
    domain = await place.add(account, new_name())
    server.mood = Mood(delay_s=600)
    started = time.monotonic()

    assert (await refusal(place, account, domain)).kind is ErrorType.UNAVAILABLE
    assert time.monotonic() - started < PATIENCE_S


async def test_nobody_at_the_address_is_a_503(place: Place) -> None:
    place.settings = msgspec.structs.replace(place.settings, cloudflare_url="http://127.0.0.1:9")
    account = await place.account()

    assert (await refusal(place, account, await place.add(account, new_name()))).kind is ErrorType.UNAVAILABLE


async def test_what_was_written_before_an_outage_is_reported_with_what_was_not(
    place: Place, server: CloudflareServer
) -> None:
    account = await place.account()
    domain = await place.add(account, new_name())
    server.zone(domain.name)
    server.mood = Mood(status=500, after=3, methods=("POST",))
    done = await published(place, account, domain)
    server.mood = None
    again = await published(place, account, domain)

    assert sorted({one.outcome for one in done.values()}) == ["created", "failed"]
    assert sum(one.outcome == "created" for one in done.values()) == 3
    assert all(one.reason for one in done.values() if one.outcome == "failed")
    assert {one.outcome for one in again.values()} == {"created", "unchanged"}


async def test_a_record_that_they_decline_fails_alone(place: Place, server: CloudflareServer) -> None:
    account = await place.account()
    domain = await place.add(account, new_name())
    server.zone(domain.name)
    declined = b'{"success":false,"errors":[{"code":9999,"message":"Quota of records reached."}],"result":null}'
    server.mood = Mood(status=400, body=declined, after=5, methods=("POST",))
    done = await published(place, account, domain)

    failed = [one for one in done.values() if one.outcome == "failed"]
    assert failed
    assert "Quota of records reached" in (failed[0].reason or "")


# -- decisions without a server ------------------------------------------------------------------------------------

IDENTITY = MailHostIdentity("mail.waybill.test", DerivedKey(b"k" * 32))
ID = ids.uuid7()


def wanted(purpose: str, kind: str = "TXT") -> WantedRecord:
    key = DomainKeyRow(ID, "wb1", "rsa-sha256", "v=DKIM1; k=rsa; p=AAAA", "active", None)
    found = records.wanted_records(ID, "shop.test", clock.now(), [key], IDENTITY)
    return next(one for one in found if one.purpose == purpose and one.type == kind)


def held(*contents: str, kind: str = "TXT", host: str = "h", comment: str | None = None) -> Sequence[ZoneRecord]:
    return [ZoneRecord(str(n), kind, host, content, 10, comment) for n, content in enumerate(contents)]


@pytest.mark.parametrize(
    ("one", "there", "action"),
    [
        (wanted("dkim"), held(), "create"),
        (wanted("dkim"), held("v=DKIM1; k=rsa; p=AAAA"), "unchanged"),
        (wanted("dkim"), held('"v=DKIM1; k=rsa; " "p=AAAA"'), "unchanged"),
        (wanted("dkim"), held("v=DKIM1; k=rsa; p=BBBB"), "update"),
        (wanted("dkim"), held("v=DKIM1; k=rsa; p=AAAA", "v=DKIM1; k=rsa; p=BBBB"), "conflict"),
        (wanted("dkim"), held("v=DKIM1; k=rsa; p=BBBB", "v=DKIM1; k=rsa; p=CCCC"), "conflict"),
        (wanted("dmarc"), held("google-site-verification=1"), "create"),
        (wanted("dmarc"), held("v=DMARC1; p=none; rua=mailto:old@x.test", comment="Waybill"), "update"),
        (wanted("dmarc"), held("v=DMARC1; p=reject"), "conflict"),
        (wanted("dmarc"), held(f"v=DMARC1; p=reject; {wanted('dmarc').value.partition('; ')[2].partition('; ')[2]}"),
         "unchanged"),
        (wanted("mta_sts"), held("v=STSv1; id=1", comment="Waybill"), "update"),
        (wanted("mta_sts", "CNAME"), held("mta-sts.mail.waybill.test", kind="CNAME"), "unchanged"),
        (wanted("mta_sts", "CNAME"), held("old.mail.waybill.test", kind="CNAME"), "update"),
        (wanted("mta_sts", "CNAME"), held("192.0.2.1", kind="A"), "conflict"),
        (wanted("inbound", "MX"), held("mx.elsewhere.test", "mail.waybill.test", kind="MX"), "unchanged"),
        (wanted("inbound", "MX"), held("mx.elsewhere.test", kind="MX"), "conflict"),
        (wanted("inbound", "MX"), held("192.0.2.1", kind="A"), "create"),
    ],
)  # fmt: skip
def test_each_state_of_a_zone_has_its_step(one: WantedRecord, there: Sequence[ZoneRecord], action: str) -> None:
    assert publishing.step_for(one, there, IDENTITY).action == action


@pytest.mark.parametrize("text", ["", "a", 'with "quotes" and \\', "x" * 255, "y" * 256, "v=DKIM1; p=" + "A" * 800])
def test_text_in_quotes_comes_back_as_it_was(text: str) -> None:
    pieces = quoted(text)

    assert unquoted(pieces) == text
    assert unquoted(text) == text
    assert max(len(piece) for piece in pieces.split('" "')) <= 255 + 12


def test_a_publication_with_nothing_written_raises_what_kept_it() -> None:
    zone = cloudflare.Zone("1", "shop.test")
    with pytest.raises(cloudflare.CloudflareUnavailable):
        _summed_up(zone, [wanted("dkim")], [cloudflare.CloudflareUnavailable("away")])
    assert _summed_up(zone, [], []) == DnsPublication("shop.test", [])
