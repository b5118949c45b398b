"""The codes and destinations of verifications can be read nowhere: while they wait, and once they are settled."""

import base64
import re
from collections.abc import AsyncIterator

import asyncpg
import msgspec
import pytest

from engine.base.settings import Settings
from engine.codes.verifications.requests import ResendRequest, StartRequest
from engine.codes.verifications.send import CodeSender
from engine.codes.verifications.types import VerificationRow
from engine.delivery.sealed_mail import cut_out
from engine.mail.read import bodies
from engine.sending.preparation import Origin
from tests.conftest import NewDatabase
from tests.harness.outbound import World, world


@pytest.fixture(scope="module")
async def around(settings: Settings, lasting_database: NewDatabase) -> AsyncIterator[World]:
    async with world(settings, await lasting_database()) as made:
        await made.mta(delivery="live", smtp_port=made.settings.sink_port, allow_private_mx=True)
        yield made


async def start(around: World, to: str, **fields: object) -> VerificationRow:
    request = msgspec.convert({"to": to, "from": around.account.sender} | fields, StartRequest)
    started = await CodeSender(around.pool, around.acceptor, around.settings).start(request, origin(around))
    return started.row


def origin(around: World) -> Origin:
    return Origin(around.account.id, "verification")


async def stored_texts(pool: asyncpg.Pool, *, ignore: frozenset[str] = frozenset()) -> AsyncIterator[tuple[str, str]]:
    """Each row of each table as text, bytea in hex and also as text where it is printable."""
    tables = await pool.fetch(
        "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p')"
        " AND NOT relispartition"
    )
    for table in tables:
        if table["relname"] in ignore:
            continue
        for row in await pool.fetch(f'SELECT * FROM "{table["relname"]}"'):
            for value in row.values():
                text = value.decode("latin-1") if isinstance(value, bytes) else str(value)
                yield table["relname"], text


async def holders(pool: asyncpg.Pool, *secrets: str, ignore: frozenset[str] = frozenset()) -> set[str]:
    """The tables in which one of the secrets can be read, plain or in base64."""
    wanted = [*secrets, *(base64.b64encode(one.encode()).decode().rstrip("=")[:-1] for one in secrets)]
    found = set()
    async for table, text in stored_texts(pool, ignore=ignore):
        if any(one.lower() in text.lower() for one in wanted):
            found.add(table)
    return found


def code_in(mime: bytes) -> str:
    found = re.search(r"^    ([0-9]{4,8})\s*$", bodies(mime).text or "", re.MULTILINE)
    assert found is not None
    return found[1]


def arrived(around: World, address: str) -> list[bytes]:
    return [one.content for one in around.sink.messages if address in one.recipients]


async def test_nothing_names_the_code_or_the_address(
    around: World, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    around.domain("codes.test")
    addresses = [f"zebra{number}.privat@codes.test" for number in range(3)]
    around.sink.script(
        f"RCPT TO:<{addresses[1]}>", f"450 4.2.2 <{addresses[1].upper()}> mailbox full, zebra1.privat", times=1
    )
    rows = [await start(around, to, link=True) for to in addresses]
    waiting = await holders(around.pool, *addresses)
    plain = await around.send("control.zebra@codes.test")
    assert {"recipients", "message_bodies"} <= await holders(around.pool, "control.zebra@codes.test")
    await around.until_idle()
    for row in rows:
        await around.until_step(row.message_id, "delivered")
    await around.until_step(plain, "delivered")
    deferred = dict(await around.waybill(rows[1].message_id))["deferred"]
    assert deferred["diagnostic"].count("*@codes.test") == 2
    assert dict(await around.waybill(rows[0].message_id))["delivered"]["recipient"] == "*@codes.test"

    assert waiting == set()  # sealed while they wait, too
    mails = [arrived(around, to)[0] for to in addresses]
    codes = [code_in(mime) for mime in mails]
    links = [re.findall(r"/v/(\w{52})", bodies(mime).text or "")[0] for mime in mails]
    assert await holders(around.pool, *addresses, *(one.partition("@")[0] for one in addresses), *links) == set()
    assert not {code for code in codes if await written_down(around, code)}
    bodies_left = await around.pool.fetchval(
        "SELECT count(*) FROM message_bodies WHERE message_id = ANY ($1)", [row.message_id for row in rows]
    )
    assert bodies_left == 0
    said = capfd.readouterr()
    for secret in (*addresses, *codes, *links):
        assert secret not in said.out + said.err


async def written_down(around: World, code: str) -> bool:
    """Return True if a code stands in a text of these messages' rows (digits occur in ids and hashes elsewhere)."""
    async for _, text in stored_texts(around.pool):
        if re.search(rf"(?<![0-9a-fA-F.:-]){code}(?![0-9a-fA-F.:-])", text):
            return True
    return False


async def test_a_permanent_refusal_suppresses_the_address_and_nothing_else_names_it(around: World) -> None:
    to = "quagga.privat@codes.test"
    around.domain("codes.test")
    around.sink.script(f"RCPT TO:<{to}>", f"550 5.1.1 <{to}>: no such user")
    row = await start(around, to)
    await around.until_step(row.message_id, "bounced")

    assert await holders(around.pool, to) == {"suppressions", "events"}
    naming = await around.pool.fetch("SELECT type FROM events WHERE payload LIKE '%quagga%'")
    assert {one["type"] for one in naming} == {"suppression.added"}
    assert await around.status(row.message_id) == "bounced"


async def test_a_code_sent_again_reaches_the_same_address(around: World) -> None:
    to = "again.privat@codes.test"
    around.domain("codes.test")
    row = await start(around, to)
    sender = CodeSender(around.pool, around.acceptor, around.settings)
    second = await sender.resend(row.id, ResendRequest(to=to), origin(around))
    await around.until_step(row.message_id, "delivered")
    await around.until_step(second.message_id, "delivered")

    mails = arrived(around, to)
    assert len(mails) == 2
    assert all(b"DKIM-Signature" in one for one in mails)


async def test_mail_sealed_under_another_pepper_ends_unread(around: World) -> None:
    around.domain("codes.test")
    other = msgspec.structs.replace(around.settings, key_pepper="another pepper")
    request = msgspec.convert({"to": "lost@codes.test", "from": around.account.sender}, StartRequest)
    started = await CodeSender(around.pool, around.acceptor, other).start(request, origin(around))
    await around.until_step(started.row.message_id, "suppressed")

    assert await around.status(started.row.message_id) == "rejected"
    assert arrived(around, "lost@codes.test") == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("550 <Ann.Lee@X.test> unknown", "550 <*@x.test> unknown"),
        ("user ann.lee: over quota", "user *@x.test: over quota"),
        ("joann.lees@x.test is fine", "joann.lees@x.test is fine"),
        ({"a": ["ann.lee@x.test", 5, None]}, {"a": ["*@x.test", 5, None]}),
    ],
)
def test_an_address_is_cut_out_whatever_its_case(text: object, expected: object) -> None:
    assert cut_out(text, "ann.lee@x.test") == expected


def test_the_mailbox_of_an_address_with_a_tag_is_cut_out_too() -> None:
    text = "550 <ann@x.test>: ann over quota; ann+codes@x.test, bob@x.test"

    assert cut_out(text, "ann+codes@x.test") == "550 <*@x.test>: *@x.test over quota; *@x.test, bob@x.test"
