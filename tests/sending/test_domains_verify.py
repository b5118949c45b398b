"""Checking domains against a real DNS server: standing, findings, events, and who holds a name."""

import asyncio
import time
from collections.abc import AsyncIterator

import asyncpg
import pytest

from engine.base import ids
from engine.base.errors import ErrorType, Refusal
from engine.base.settings import Settings
from engine.people.system_mail.types import SystemMailKind
from engine.receiving.remove_domain import remove_domain
from engine.sending.domains import lookups, mistakes, records, store, verification
from engine.sending.domains.service import add_domain
from engine.sending.domains.types import DomainRow
from ops.local.dns import DnsBehaviour, Responder
from tests.harness.domains import Place, finding, new_name, publish
from tests.harness.patience import PATIENCE_S
from tests.harness.people import make_person


@pytest.fixture
async def place(pool: asyncpg.Pool, settings: Settings) -> AsyncIterator[Place]:
    async with Responder() as zone:
        yield Place(pool, settings, zone)


# -- standing ------------------------------------------------------------------------------------------------


async def test_a_domain_is_verified_by_its_rsa_key_alone(place: Place) -> None:
    account = await place.account()
    domain = await place.add(account, new_name())
    before = await place.verify(account, domain)
    await place.publish(domain, "wb1")
    after = await place.verify(account, domain)

    assert (before.domain.status, before.domain.verified_at) == ("pending", None)
    assert before.domain.checked_at is not None
    assert after.domain.status == "verified"
    assert after.domain.verified_at is not None
    assert after.notice is None
    assert await place.kinds(account) == ["domain.added", "domain.verified"]
    (_, detail) = (await place.events(account))[1]
    assert detail == {"id": ids.format_id(ids.Kind.DOMAIN, domain.id), "name": domain.name}


async def test_every_record_says_what_was_found(place: Place) -> None:
    account = await place.account()
    domain = await place.add(account, new_name())
    await place.publish(domain)
    place.zone.set(domain.name, "MX", ["10 mx.elsewhere.test."])
    place.zone.set(f"_smtp._tls.{domain.name}", "TXT", [])
    place.zone.set(f"wb1e._domainkey.{domain.name}", "TXT", ["v=DKIM1; p="])
    checks = (await place.verify(account, domain)).records
    key = (await place.keys(domain))["wb1"].public_txt

    assert finding(checks, "TXT", f"wb1._domainkey.{domain.name}") == ("ok", (key,), None)
    assert finding(checks, "TXT", f"wb1e._domainkey.{domain.name}") == ("mismatch", ("v=DKIM1; p=",), None)
    assert finding(checks, "MX", domain.name) == ("mismatch", ("10 mx.elsewhere.test",), None)
    assert finding(checks, "TXT", f"_smtp._tls.{domain.name}") == ("missing", (), None)
    assert finding(checks, "CNAME", f"mta-sts.{domain.name}")[0] == "ok"
    assert finding(checks, "TXT", f"_dmarc.{domain.name}")[0] == "ok"
    assert finding(checks, "TXT", "bounces.mail.waybill.test")[0] == "ok"
    assert finding(checks, "MX", "bounces.mail.waybill.test")[0] == "ok"
    row, keys = await place.row(account, domain.id), (await place.keys(domain)).values()
    assert verification.known_records(place.settings, row, list(keys)) == checks


async def test_a_sample_that_another_verifier_rejects_is_told(place: Place) -> None:
    account = await place.account()
    domain = await place.verified(account, new_name())
    right = await verification.verify_now(place.pool, place.settings, account.id, domain.id)
    text = (await place.keys(domain))["wb1"].public_txt
    place.zone.set(f"wb1._domainkey.{domain.name}", "TXT", [text + "; t"])  # a tag without a value is no tag list
    odd = await verification.verify_now(place.pool, place.settings, account.id, domain.id)
    place.zone.set(f"wb1._domainkey.{domain.name}", "TXT", [text])
    other = store.seal_key(domain.id, store.fresh_key("wb1", "rsa-sha256"), pepper=place.settings.pepper)
    await place.pool.execute(
        "UPDATE domain_keys SET sealed_key = $2 WHERE domain_id = $1 AND selector = 'wb1'", domain.id, other
    )
    wrong = await verification.verify_now(place.pool, place.settings, account.id, domain.id)

    assert right.notice is None
    assert odd.notice is not None
    assert odd.notice.startswith(verification.SAMPLE_FAILED.partition("{")[0])
    assert "another key than the one that signs" in str(wrong.notice)
    assert [one.domain.status for one in (right, odd, wrong)] == ["verified"] * 3


async def test_a_record_at_a_name_with_the_zone_appended_again_is_named(place: Place) -> None:
    account = await place.account()
    domain = await place.add(account, new_name())
    for one in await place.wanted(domain):
        if not one.by_operator:
            value = one.value if one.type == "TXT" else f"{one.value}."
            place.zone.set(f"{one.host}.{domain.name}", one.type, [value])
    checks = {one.wanted.place: one for one in (await place.verify(account, domain)).records}
    told = {at: mistakes.mistake(one.wanted, one.finding, domain.name) for at, one in checks.items()}

    assert told["CNAME", f"bounce.{domain.name}"] == (
        f"The record is at bounce.{domain.name}.{domain.name}: the DNS host appended {domain.name} to the name. Enter"
        " the name there as bounce."
    )
    assert "Enter the name there as wb1._domainkey." in str(told["TXT", f"wb1._domainkey.{domain.name}"])
    assert "Enter the name there as @." in str(told["MX", domain.name])
    assert all(text for (_, host), text in told.items() if host.endswith(domain.name))


async def test_a_verified_domain_fails_at_the_second_miss_in_a_row_and_comes_back(place: Place) -> None:
    account = await place.account()
    people = [await make_person(place.pool, account.id, role) for role in ("owner", "admin", "member")]
    domain = await place.verified(account, new_name())
    await place.withdraw(domain, "wb1")
    first = await place.verify(account, domain)
    second = await place.verify(account, domain)
    third = await place.verify(account, domain)
    await place.publish(domain, "wb1")
    back = await place.verify(account, domain)

    assert [one.domain.status for one in (first, second, third, back)] == ["verified", "failed", "failed", "verified"]
    assert "next check" in str(first.notice)
    assert back.domain.verified_at == domain.verified_at
    kinds = ["domain.added", "domain.verified", "domain.failed", "domain.verified"]
    assert await place.kinds(account) == kinds
    rows = await place.pool.fetch(
        "SELECT kind, address, detail ->> 'reason' AS reason, detail ->> 'id' AS id FROM system_mail"
        " WHERE detail ->> 'domain' = $1 ORDER BY address",
        domain.name,
    )
    public_id = ids.format_id(ids.Kind.DOMAIN, domain.id)
    assert [tuple(row) for row in rows] == [
        (SystemMailKind.DOMAIN_FAILED, email, verification.NOT_FOUND_TWICE, public_id)
        for email in sorted(person.email for person in people[:2])
    ]
    failed = dict(await place.events(account))["domain.failed"]
    assert failed["reason"] == verification.NOT_FOUND_TWICE
    assert failed["records"] == [
        {
            "type": "TXT",
            "host": f"wb1._domainkey.{domain.name}",
            "value": (await place.keys(domain))["wb1"].public_txt,
            "status": "missing",
            "found": [],
        }
    ]


async def test_a_changed_key_is_a_miss_too_and_the_event_shows_what_stands_there(place: Place) -> None:
    account = await place.account()
    domain = await place.verified(account, new_name())
    place.zone.set(f"wb1._domainkey.{domain.name}", "TXT", ["v=DKIM1; p=AAAA"])
    await place.verify(account, domain)
    await place.verify(account, domain)
    failed = dict(await place.events(account))["domain.failed"]

    assert (failed["records"][0]["status"], failed["records"][0]["found"]) == ("mismatch", ["v=DKIM1; p=AAAA"])


@pytest.mark.parametrize("behaviour", [DnsBehaviour(rcode="SERVFAIL"), DnsBehaviour(rcode="REFUSED")])
async def test_dns_that_does_not_answer_decides_nothing_and_says_so(place: Place, behaviour: DnsBehaviour) -> None:
    account = await place.account()
    domain = await place.verified(account, new_name())
    host = f"wb1._domainkey.{domain.name}"
    place.zone.behave(host, behaviour)
    found = [await place.verify(account, domain) for _ in range(3)]

    assert {one.domain.status for one in found} == {"verified"}
    assert finding(found[-1].records, "TXT", host) == ("ok", (found[-1].records[0].wanted.value,), records.NO_ANSWER)
    assert "the status is unchanged" in str(found[-1].notice)
    assert await place.kinds(account) == ["domain.added", "domain.verified"]


async def test_an_optional_record_without_answer_keeps_nothing_from_being_decided(place: Place) -> None:
    account = await place.account()
    domain = await place.add(account, new_name())
    await place.publish(domain, "wb1")
    place.zone.behave(f"_dmarc.{domain.name}", DnsBehaviour(rcode="SERVFAIL"))
    found = await place.verify(account, domain)

    assert found.domain.status == "verified"
    assert "some records" in str(found.notice)


@pytest.mark.exhaustive
async def test_a_name_server_that_never_answers_holds_a_check_for_a_bounded_time(place: Place) -> None:
    account = await place.account()
    domain = await place.add(account, new_name())
    place.zone.behave_under(domain.name, DnsBehaviour(drop=True))
    started = time.monotonic()
    found = await place.verify(account, domain)

    assert time.monotonic() - started < lookups.CHECK_S + PATIENCE_S
    assert found.domain.status == "pending"


async def test_what_strangers_write_into_dns_is_kept_within_bounds(place: Place) -> None:
    account = await place.account()
    domain = await place.add(account, new_name())
    host = f"_dmarc.{domain.name}"
    odd = ['"v=DMARC1\\000\\001; p=none \\255\\254"', "v=DMARC1; " + "x" * 20_000, *[f"n{n}" for n in range(40)]]
    place.zone.set(host, "TXT", odd)
    status, found, _ = finding((await place.verify(account, domain)).records, "TXT", host)

    assert status in {"missing", "mismatch"}
    assert len(found) == lookups.MAX_FOUND
    assert all(len(text) <= lookups.MAX_TEXT and text.isprintable() for text in found)


async def test_a_key_behind_an_alias_counts(place: Place) -> None:
    account = await place.account()
    domain = await place.add(account, new_name())
    await place.publish(domain, "wb1")
    key = (await place.keys(domain))["wb1"].public_txt
    del place.zone._zone[f"wb1._domainkey.{domain.name}"]
    place.zone.set(f"wb1._domainkey.{domain.name}", "CNAME", ["keys.elsewhere.test."])
    place.zone.set("keys.elsewhere.test", "TXT", [key])

    assert (await place.verify(account, domain)).domain.status == "verified"


@pytest.mark.exhaustive
async def test_one_name_is_asked_about_only_so_often(place: Place) -> None:
    account = await place.account()
    domain = await place.add(account, new_name())
    started = time.monotonic()
    found = await asyncio.gather(*[place.verify(account, domain) for _ in range(16)], return_exceptions=True)
    refused = [one for one in found if isinstance(one, Refusal)]

    assert time.monotonic() - started >= 5 * verification.AGAIN_S
    assert {one.kind for one in refused} == {ErrorType.RATE_LIMITED}
    assert all(one.retry_after_s for one in refused)
    assert len(found) - len(refused) == int(verification.MAX_WAIT_S / verification.AGAIN_S) + 1
    assert not [one for one in found if isinstance(one, BaseException) and not isinstance(one, Refusal)]


async def test_a_stranger_who_adds_the_name_does_not_keep_its_owner_waiting(place: Place) -> None:
    owner, stranger = await place.account(), await place.account()
    domain = await place.add(owner, new_name())
    squatted = await place.add(stranger, domain.name)
    checks = [asyncio.ensure_future(place.verify(stranger, squatted)) for _ in range(16)]
    while not any(one.done() for one in checks):  # the first check has begun, and its turns are taken
        await asyncio.sleep(0.01)
    started = time.monotonic()
    await place.verify(owner, domain)
    took = time.monotonic() - started
    for one in checks:
        one.cancel()
    await asyncio.gather(*checks, return_exceptions=True)

    assert took < verification.MAX_WAIT_S


async def test_ed25519_signs_from_the_check_that_finds_it_to_the_one_that_misses_it(place: Place) -> None:
    account = await place.account()
    domain = await place.add(account, new_name())
    states = []
    for step in (("wb1",), ("wb1e",), ()):
        if step:
            await place.publish(domain, *step)
        else:
            await place.withdraw(domain, "wb1e")
        await place.verify(account, domain)
        states.append((await place.keys(domain))["wb1e"].status)

    assert states == ["pending", "active", "pending"]


# -- one holder ------------------------------------------------------------------------------------------------


async def test_a_name_passes_to_the_account_whose_key_dns_shows(place: Place) -> None:
    first, second = await place.account(), await place.account()
    owner = await make_person(place.pool, first.id)
    await make_person(place.pool, second.id)
    held = await place.verified(first, new_name())
    wanted = await place.add(second, held.name)
    too_early = await place.verify(second, wanted)
    await place.publish(wanted, "wb1")  # under the same selector: it takes the place of the first one's
    taken = await place.verify(second, wanted)

    assert too_early.domain.status == "pending"
    assert finding(too_early.records, "TXT", f"wb1._domainkey.{held.name}")[0] == "mismatch"
    assert taken.domain.status == "verified"
    assert (await place.row(first, held.id)).status == "failed"
    assert await place.kinds(first) == ["domain.added", "domain.verified", "domain.failed"]
    lost = dict(await place.events(first))["domain.failed"]
    assert lost["reason"] == verification.PASSED_OVER
    assert lost["records"][0]["status"] == "mismatch"
    assert str(second.id) not in str(lost)
    rows = await place.pool.fetch(
        "SELECT address, detail ->> 'reason' AS reason FROM system_mail WHERE detail ->> 'domain' = $1", held.name
    )
    assert [tuple(row) for row in rows] == [(owner.email, verification.PASSED_OVER)]
    assert await place.kinds(second) == ["domain.added", "domain.verified"]


async def under_wb3(place: Place, domain: DomainRow) -> None:
    """Its RSA key under a selector of its own, as after a rotation: two accounts' keys can then stand side by side."""
    await place.pool.execute(
        "UPDATE domain_keys SET selector = 'wb3' WHERE domain_id = $1 AND selector = 'wb1'", domain.id
    )


async def test_while_dns_vouches_for_both_the_name_stays(place: Place) -> None:
    first, second = await place.account(), await place.account()
    held = await place.verified(first, new_name())
    wanted = await place.add(second, held.name)
    await under_wb3(place, wanted)
    await place.publish(wanted, "wb3")
    contested = await place.verify(second, wanted)
    await place.withdraw(held, "wb1")
    taken = await place.verify(second, wanted)

    assert contested.domain.status == "pending"
    assert "another account" in str(contested.notice)
    assert taken.domain.status == "verified"
    assert (await place.row(first, held.id)).status == "failed"


async def test_while_dns_does_not_tell_of_the_holder_the_name_stays(place: Place) -> None:
    first, second = await place.account(), await place.account()
    held = await place.verified(first, new_name())
    wanted = await place.add(second, held.name)
    await under_wb3(place, wanted)
    await place.publish(wanted, "wb3")
    place.zone.behave(f"wb1._domainkey.{held.name}", DnsBehaviour(rcode="SERVFAIL"))

    assert (await place.verify(second, wanted)).domain.status == "pending"
    assert (await place.row(first, held.id)).status == "verified"


@pytest.mark.exhaustive
async def test_two_accounts_that_check_at_once_do_not_both_get_the_name(place: Place) -> None:
    for _ in range(10):
        first, second = await place.account(), await place.account()
        one = await place.add(first, new_name())
        two = await place.add(second, one.name)
        await under_wb3(place, two)
        publish(place.zone, [each for each in await place.wanted(one) if each.selector == "wb1"])
        publish(place.zone, [each for each in await place.wanted(two) if each.selector == "wb3"])
        async with _asking(place) as asked:
            done = await asyncio.gather(
                verification.verify(place.pool, place.settings, one, asked),
                verification.verify(place.pool, place.settings, two, asked),
            )

        assert sorted(each.domain.status for each in done) == ["pending", "verified"]


async def test_the_operators_word_does_not_give_a_name_to_two(place: Place) -> None:
    first, second = await place.account(), await place.account()
    held = await place.verified(first, new_name())
    with pytest.raises(Refusal) as caught:
        await add_domain(place.pool, place.settings, second.id, held.name, vouched=True)

    assert caught.value.kind is ErrorType.CONFLICT
    assert await place.kinds(second) == []
    assert await place.pool.fetchval("SELECT count(*) FROM domains WHERE name = $1", held.name) == 1


@pytest.mark.exhaustive
async def test_a_vouched_domain_keeps_its_name_and_its_standing_whatever_dns_says(place: Place) -> None:
    first, second = await place.account(), await place.account()
    made = await add_domain(place.pool, place.settings, first.id, new_name(), vouched=True)
    held = await place.row(first, made.id)
    for _ in range(3):
        await place.verify(first, held)
    wanted = await place.add(second, held.name)
    await place.publish(wanted, "wb1")

    assert (await place.verify(second, wanted)).domain.status == "pending"
    assert (await place.row(first, held.id)).status == "verified"
    assert (await place.events(first))[-1] == (
        "domain.verified",
        {"id": made.public_id, "name": held.name, "by": "operator"},
    )


async def test_a_domain_that_is_removed_during_its_check_is_gone(place: Place) -> None:
    account = await place.account()
    domain = await place.add(account, new_name())
    await place.publish(domain)
    place.zone.behave(f"wb1._domainkey.{domain.name}", DnsBehaviour(delay_s=0.3))
    check = asyncio.create_task(place.verify(account, domain))
    await asyncio.sleep(0.1)
    await remove_domain(place.pool, account.id, domain.id)

    with pytest.raises(Refusal) as caught:
        await check
    assert caught.value.kind is ErrorType.NOT_FOUND
    assert await place.kinds(account) == ["domain.added", "domain.removed"]


def _asking(place: Place) -> "_Asking":
    return _Asking(place.settings)


class _Asking:
    """One resolver for several checks."""

    def __init__(self, settings: Settings) -> None:
        self._resolver = lookups.for_checks(settings)

    async def __aenter__(self) -> lookups.SetupResolver:
        return self._resolver

    async def __aexit__(self, *_: object) -> None:
        await self._resolver.close()
