"""Return paths under the customer's own domain: in use while the record is found, given up when it is gone."""

from email import message_from_bytes
from email.policy import SMTP
from typing import Any

import dkim
import pytest

from engine.base.errors import Refusal
from engine.mail import return_path
from engine.mail.feedback_headers import cfbl_key, cfbl_origin
from engine.sending.domains.service import change_domain
from engine.sending.domains.types import DomainRow
from tests.harness.domains import RETURN_PATH, Place, new_name
from tests.harness.outbound import World
from tests.harness.stored_messages import PlacedAddress


async def path_of(here: World, domain: DomainRow, to: str) -> str:
    """The host of the envelope sender with which mail of the domain arrives."""
    here.acceptor.preparer.domains.clear()
    fields: dict[str, Any] = {"from": f"shop@{domain.name}"}
    await here.send(to, **fields)
    await here.until(lambda: any(to in one.recipients for one in here.sink.messages))
    return str(next(one.sender for one in here.sink.messages if to in one.recipients)).rpartition("@")[2]


def content_of(here: World, to: str) -> bytes:
    """The message that arrived for an address."""
    return next(one.content for one in here.sink.messages if to in one.recipients)


def cfbl_of(here: World, to: str) -> list[str]:
    """The values of CFBL-Address and CFBL-Feedback-ID with which mail arrived."""
    fields = message_from_bytes(content_of(here, to), policy=SMTP)
    return [str(fields[name]) for name in ("CFBL-Address", "CFBL-Feedback-ID") if name in fields]


async def test_a_verified_record_moves_return_paths_to_the_domain_and_a_lost_one_moves_them_back(
    here: World, place: Place
) -> None:
    domain = await place.add(here.account, new_name())
    await place.publish(domain, "wb1")
    assert (await place.verify(here.account, domain)).domain.return_path == "pending"
    await here.mta()
    assert await path_of(here, domain, "a@peer.test") == f"bounces.{here.settings.mail_host}"

    place.zone.set(f"bounce.{domain.name}", "CNAME", [f"bounces.{here.settings.mail_host}."])
    publish_spf(here, place)
    assert (await place.verify(here.account, domain)).domain.return_path == "verified"
    await here.heard()
    assert await path_of(here, domain, "b@peer.test") == f"bounce.{domain.name}"

    place.zone.set(f"bounce.{domain.name}", "CNAME", ["elsewhere.test."])
    once = (await place.verify(here.account, domain)).domain
    assert (once.return_path, once.return_path_misses, once.status) == ("verified", 1, "verified")
    twice = (await place.verify(here.account, domain)).domain
    assert (twice.return_path, twice.status) == ("failed", "verified")
    await here.heard()
    assert await path_of(here, domain, "c@peer.test") == f"bounces.{here.settings.mail_host}"

    events = await place.events(here.account, RETURN_PATH)
    assert [kind for kind, _ in events] == ["domain.return_path_verified", "domain.return_path_failed"]
    assert events[1][1]["host"] == f"bounce.{domain.name}"
    assert events[1][1]["found"] == ["elsewhere.test"]


def publish_spf(here: World, place: Place) -> None:
    """Publish the operator's SPF record of all return paths."""
    spf = f"v=spf1 a:{here.settings.mail_host} -all"
    place.zone.set(f"bounces.{here.settings.mail_host}", "TXT", [spf])


async def test_without_the_spf_record_of_its_return_path_a_domain_does_not_show_it_as_verified(
    here: World, place: Place
) -> None:
    domain, bounces = await place.add(here.account, new_name()), f"bounces.{here.settings.mail_host}"
    await place.publish(domain, "wb1")
    place.zone.set(f"bounce.{domain.name}", "CNAME", [f"{bounces}."])
    assert (await place.verify(here.account, domain)).domain.return_path == "pending"
    publish_spf(here, place)
    assert (await place.verify(here.account, domain)).domain.return_path == "verified"

    place.zone.set(bounces, "TXT", [])
    found = [(await place.verify(here.account, domain)).domain for _ in range(2)]

    assert [one.return_path for one in found] == ["verified", "failed"]
    assert found[-1].status == "verified"  # DKIM still passes
    lost = (await place.events(here.account, RETURN_PATH))[-1]
    assert (lost[0], lost[1]["host"], lost[1]["found"]) == ("domain.return_path_failed", bounces, [])


async def test_recipients_of_one_domain_share_a_return_path_that_speaks_for_them_alone(here: World) -> None:
    here.domain("far.test", mx="mx.far.test")
    addresses = ["ann@peer.test", "bob@far.test", "cleo@far.test"]
    message = await here.send(*addresses)
    await here.mta()
    await here.until_step(message, "delivered")
    await here.until(lambda: sum(len(one.recipients) for one in here.sink.messages) == 3)

    assert here.settings.key_pepper is not None
    key = return_path.key_of(here.settings.pepper)
    placed = [PlacedAddress(n, address) for n, address in enumerate(addresses)]
    for one in here.sink.messages:
        found = return_path.origin(key, one.sender)
        assert found is not None
        assert [own.address for own in return_path.recipients_of(found, placed)] == sorted(one.recipients)
    assert sorted(len(one.recipients) for one in here.sink.messages) == [1, 2]


async def test_a_new_label_is_used_once_its_own_record_is_found(here: World, place: Place) -> None:
    domain = await place.verified(here.account, new_name())
    assert domain.return_path == "verified"

    await change_domain(here.pool, here.account.id, domain.id, return_path_label="Mail-Bounces")
    changed = await place.row(here.account, domain.id)
    assert (changed.return_path_host, changed.return_path) == (f"mail-bounces.{domain.name}", "pending")
    assert (await place.verify(here.account, changed)).domain.return_path == "pending"

    await place.publish(changed)
    assert (await place.verify(here.account, changed)).domain.return_path == "verified"
    assert "domain.updated" in await place.kinds(here.account)


async def test_mail_asks_for_complaints_at_its_own_return_path_host_under_a_signature(
    here: World, place: Place
) -> None:
    domain = await place.add(here.account, new_name())
    await place.publish(domain, "wb1")
    await place.verify(here.account, domain)
    await here.mta()
    await path_of(here, domain, "a@peer.test")
    assert not cfbl_of(here, "a@peer.test")

    await place.publish(domain)
    await place.verify(here.account, domain)
    await here.heard()
    host = await path_of(here, domain, "b@peer.test")
    address, token = cfbl_of(here, "b@peer.test")

    assert (host, address) == (f"bounce.{domain.name}", f"fbl@{host}; report=arf")
    assert here.settings.key_pepper is not None
    found = cfbl_origin(cfbl_key(here.settings.pepper), token)
    assert found is not None
    assert (
        await here.pool.fetchval("SELECT account_id FROM messages WHERE id = $1", found.message_id) == here.account.id
    )
    wanted = {one.host: one.value for one in await place.wanted(domain) if one.type == "TXT"}
    mime = content_of(here, "b@peer.test")
    for mail, verifies in (
        (mime, True),
        (mime.replace(b"fbl@", b"spy@"), False),
        (mime.replace(b"k-ID: ", b"k-ID: 0"), False),
    ):
        assert dkim.DKIM(mail).verify(dnsfunc=lambda at, timeout: wanted[at.decode().rstrip(".")].encode()) is verifies


@pytest.mark.parametrize("label", ["", "a.b", "-a", "a_b", "mta-sts", "x" * 64, "bücher"])
async def test_a_label_that_is_no_host_name_is_refused(here: World, place: Place, label: str) -> None:
    domain = await place.add(here.account, new_name())
    with pytest.raises(Refusal, match="returnPathLabel"):
        await change_domain(here.pool, here.account.id, domain.id, return_path_label=label)
