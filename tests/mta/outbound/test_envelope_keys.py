"""The DKIM keys that sign during rotation, removal and re-adding, verified by dkimpy."""

import asyncio
import re
from typing import Any
from uuid import UUID

import dkim
import dns.message
import dns.query
import pytest
from dns.rdtypes.ANY.TXT import TXT

from engine.base.errors import ErrorType, Refusal
from engine.receiving.remove_domain import remove_domain
from engine.sending.domains import jobs as domain_jobs
from engine.sending.domains import store
from engine.sending.domains.key_rotation import rotate_keys
from engine.sending.domains.types import DomainRow
from tests.harness.domains import Place, new_name
from tests.harness.outbound import World

SELECTOR = re.compile(rb"[; \t]s=(\w+);")


async def sent(here: World, domain: DomainRow, to: str) -> UUID:
    """A message from the domain; what the acceptor remembers of domains is a moment old at most."""
    here.acceptor.preparer.domains.clear()
    fields: dict[str, Any] = {"from": f"shop@{domain.name}"}
    return await here.send(to, **fields)


async def signers(here: World, to: str) -> list[str]:
    """The selectors of the signatures on the mail for `to`, each of which verifies."""
    await here.until(lambda: any(to in one.recipients for one in here.sink.messages))
    content = next(one.content for one in here.sink.messages if to in one.recipients)
    fields = content.partition(b"\r\n\r\n")[0]
    found = [match.decode() for match in SELECTOR.findall(fields)]
    assert await asyncio.to_thread(_all_verify, content, len(found), here.dns.address)
    return found


def _all_verify(content: bytes, count: int, server: tuple[str, int]) -> bool:
    def look_up(asked: bytes | str, timeout: float = 5) -> bytes | None:
        query = dns.message.make_query(asked.decode() if isinstance(asked, bytes) else asked, "TXT")
        answer = dns.query.udp(query, server[0], timeout=timeout, port=server[1])
        texts = [b"".join(data.strings) for rrset in answer.answer for data in rrset if isinstance(data, TXT)]
        return texts[0] if texts else None

    mail: Any = dkim.DKIM(content)
    return all(mail.verify(idx=number, dnsfunc=look_up) for number in range(count))


async def test_a_rotation_from_end_to_end(here: World, place: Place) -> None:
    domain = await place.verified(here.account, new_name())
    await place.withdraw(domain, "wb2", "wb2e")
    await here.mta()
    await sent(here, domain, "before@peer.test")
    before = await signers(here, "before@peer.test")

    asked = await rotate_keys(place.pool, place.settings, here.account.id, domain.id)
    await sent(here, domain, "meanwhile@peer.test")
    meanwhile = await signers(here, "meanwhile@peer.test")

    here.sink.script("RCPT TO:<late@peer.test>", "450 4.2.1 mailbox busy")
    late = await sent(here, domain, "late@peer.test")
    await here.until_step(late, "deferred")
    await place.publish(domain, "wb2", "wb2e")
    moved = await place.verify(here.account, domain)
    await here.heard()
    await sent(here, domain, "after@peer.test")
    after = await signers(here, "after@peer.test")
    here.sink.scripts.clear()
    await here.until_step(late, "delivered")

    assert before == ["wb1", "wb1e"]
    assert {key.selector: key.status for key in asked.keys}["wb2"] == "pending"
    assert meanwhile == ["wb1", "wb1e"]
    assert moved.domain.status == "verified"
    statuses = {key.selector: key.status for key in moved.keys}
    assert statuses == {"wb1": "retiring", "wb1e": "retiring", "wb2": "active", "wb2e": "active"}
    assert after == ["wb2", "wb2e"]
    assert await signers(here, "late@peer.test") == ["wb1", "wb1e"]  # signed then, and still vouched for
    rotated = dict(await place.events(here.account))["domain.key_rotated"]
    assert (rotated["name"], rotated["from"], rotated["to"]) == (domain.name, "wb1", "wb2")


async def test_keys_published_ahead_take_over_at_once_and_the_pairs_take_turns(here: World, place: Place) -> None:
    domain = await place.verified(here.account, new_name())
    first = await rotate_keys(place.pool, place.settings, here.account.id, domain.id)
    with pytest.raises(Refusal) as too_soon:
        await rotate_keys(place.pool, place.settings, here.account.id, domain.id)
    await place.pool.execute("UPDATE domain_keys SET retire_at = now() - interval '1 s' WHERE retire_at IS NOT NULL")
    await domain_jobs.retire_keys(place.pool, place.settings)
    waiting = await rotate_keys(place.pool, place.settings, here.account.id, domain.id)
    again = await rotate_keys(place.pool, place.settings, here.account.id, domain.id)
    await place.publish(domain, "wb1", "wb1e")  # the fresh keys under the old selectors
    back = await place.verify(here.account, domain)
    await here.mta()
    await sent(here, domain, "ann@peer.test")

    assert {key.selector for key in first.keys if key.status == "active"} == {"wb2", "wb2e"}
    assert (too_soon.value.kind, too_soon.value.fields) == (ErrorType.INVALID_STATE, {"state": "retiring"})
    assert {key.selector: key.status for key in waiting.keys}["wb1"] == "pending"
    assert again.keys == waiting.keys
    assert {key.selector for key in back.keys if key.status == "active"} == {"wb1", "wb1e"}
    assert await signers(here, "ann@peer.test") == ["wb1", "wb1e"]
    assert (await place.kinds(here.account)).count("domain.key_rotated") == 2


async def test_a_domain_that_was_never_verified_has_no_keys_to_change(place: Place, here: World) -> None:
    domain = await place.add(here.account, new_name())
    with pytest.raises(Refusal) as caught:
        await rotate_keys(place.pool, place.settings, here.account.id, domain.id)

    assert (caught.value.kind, caught.value.fields) == (ErrorType.INVALID_STATE, {"state": "pending"})


async def test_a_domain_without_spare_keys_gets_them_when_it_asks(here: World, place: Place) -> None:
    domain = await place.verified(here.account, new_name())
    await place.pool.execute("DELETE FROM domain_keys WHERE domain_id = $1 AND selector LIKE 'wb2%'", domain.id)
    await place.withdraw(domain, "wb2", "wb2e")
    asked = await rotate_keys(place.pool, place.settings, here.account.id, domain.id)

    statuses = {key.selector: key.status for key in asked.keys}
    assert statuses == {"wb1": "active", "wb1e": "active", "wb2": "pending", "wb2e": "standby"}
    assert any(one.wanted.host == f"wb2._domainkey.{domain.name}" for one in asked.records)


async def test_what_was_accepted_still_goes_signed_when_its_domain_is_removed(here: World, place: Place) -> None:
    domain = await place.verified(here.account, new_name())
    queued = await sent(here, domain, "queued@peer.test")
    await remove_domain(place.pool, here.account.id, domain.id)
    with pytest.raises(Refusal) as refused:
        await sent(here, domain, "new@peer.test")
    await here.mta()
    await here.until_step(queued, "delivered")

    assert refused.value.kind is ErrorType.DOMAIN_NOT_VERIFIED
    assert await signers(here, "queued@peer.test") == ["wb1", "wb1e"]


async def test_a_name_that_was_added_again_leaves_the_old_mail_its_keys(here: World, place: Place) -> None:
    old = await place.verified(here.account, new_name())
    await sent(here, old, "old@peer.test")
    await remove_domain(place.pool, here.account.id, old.id)
    new = await place.add(here.account, old.name)
    await here.mta()
    before = await signers(here, "old@peer.test")
    await place.publish(new)
    verified = await place.verify(here.account, new)
    await here.heard()
    await sent(here, new, "new@peer.test")

    assert new.id != old.id
    assert before == ["wb1", "wb1e"]
    assert set(await place.keys(new)) == {"wb2", "wb2e"}  # beside the old ones, which mail may still be signed with
    assert verified.domain.status == "verified"
    assert await signers(here, "new@peer.test") == ["wb2", "wb2e"]


async def test_another_accounts_keys_never_sign(here: World, place: Place) -> None:
    domain = await place.verified(here.account, new_name())
    other = await place.account()
    async with place.pool.acquire() as connection:
        assert await store.signing_keys(connection, other.id, domain.name, pepper=here.settings.pepper) == []
