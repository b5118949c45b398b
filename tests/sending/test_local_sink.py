"""The mail in the local sink: each account sees its own, newest first, and only in local mode."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import asyncpg
import msgspec
import pytest
from msgspec import structs

from engine.base import clock, ids
from engine.base.settings import Settings
from engine.mail import return_path
from engine.store.sink_folder import INDEX
from ops.local.sink_store import MailStore, SinkMessage, StoreMode
from tests.conftest import ServeApi
from tests.harness.accounts import PEPPER, TestAccount, make_account
from tests.harness.api import Api, serving
from tests.harness.people import make_person

MAIL = (
    b"From: Ann <ann@shop.test>\r\nTo: bob@people.test\r\nSubject: =?utf-8?q?Gr=C3=BC=C3=9Fe?=\r\n"
    b"MIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=x\r\n\r\n"
    b"--x\r\nContent-Type: text/plain\r\n\r\nHello\r\n--x\r\nContent-Type: text/html\r\n\r\n<p>Hello</p>\r\n"
    b"--x\r\nContent-Type: application/pdf\r\nContent-Disposition: attachment; filename=a.pdf\r\n\r\nPDF\r\n--x--\r\n"
)
RUN = 0x19AB_0000


class SinkStore:
    """The folder of a sink, written as the sink does."""

    def __init__(self, folder: Path) -> None:
        self.store = MailStore(folder, StoreMode.FILES)
        self.number = 0

    def keep(self, message: str, *, to: str = "bob@people.test", content: bytes = MAIL, place: int = 0) -> str:
        """Store a delivery of a message; return its id in the sink."""
        origin = ids.parse_id(ids.Kind.MESSAGE, message)
        sender = return_path.return_path(return_path.key_of(PEPPER), origin, place, "bounces.mail.waybill.test")
        return self.keep_from(sender, to=to, content=content)

    def keep_from(self, sender: str, *, to: str = "bob@people.test", content: bytes = MAIL) -> str:
        self.number += 1
        made = SinkMessage(
            id=f"{RUN:x}-{self.number}", at=clock.iso(clock.now()), sender=sender, recipients=(to,), helo="mta.test",
            tls="TLSv1.3", size=len(content), test_id=None, content=content, port=2600,
        )  # fmt: skip
        self.store.keep(made, self.number)
        return made.id


@pytest.fixture(scope="module")
def local(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    return structs.replace(settings, state=tmp_path_factory.mktemp("local"))


@pytest.fixture(scope="module")
def sinking(local: Settings, serve: ServeApi) -> Api:
    return serve(local)


@pytest.fixture(scope="module")
async def sink(local: Settings) -> AsyncIterator[SinkStore]:
    made = SinkStore(local.state / "sink")
    yield made
    made.store.close()


async def send(api: Api, account: TestAccount) -> str:
    answer = await api.post("/v1/emails", account.token, account.email())
    assert answer.status == 202, answer.body
    return str(answer.json["id"])


async def listed(api: Api, account: TestAccount, query: str = "") -> list[dict[str, Any]]:
    answer = await api.get(f"/v1/local/sink{query}", account.token)
    assert answer.status == 200, answer.body
    rows: list[dict[str, Any]] = answer.json["data"]
    return rows


async def test_a_delivered_mail_is_shown_with_its_message(sinking: Api, account: TestAccount, sink: SinkStore) -> None:
    message = await send(sinking, account)
    kept = sink.keep(message)

    [row] = await listed(sinking, account)
    one = (await sinking.get(f"/v1/local/sink/{kept}", account.token)).json
    raw = await sinking.get(f"/v1/local/sink/{kept}/raw", account.token)

    assert clock.parse_iso(row.pop("receivedAt"))
    sender = row["envelope"].pop("from")
    assert sender.startswith("b+")
    assert row == {
        "id": kept, "messageId": message, "subject": "Grüße", "sizeBytes": len(MAIL),
        "envelope": {"to": ["bob@people.test"], "helo": "mta.test", "tls": "TLSv1.3", "port": 2600},
    }  # fmt: skip
    assert (one["text"].strip(), one["html"].strip()) == ("Hello\nHello", "<p>Hello</p>\n<p>Hello</p>")
    assert one["headers"][2] == {"name": "Subject", "value": "Grüße"}
    assert [(file["filename"], file["size_bytes"]) for file in one["attachments"]] == [("a.pdf", 3)]
    assert raw.body == MAIL
    assert raw.headers["content-type"] == "message/rfc822"
    assert raw.headers["content-disposition"].startswith("attachment")


async def test_another_account_sees_nothing_of_it(
    sinking: Api, pool: asyncpg.Pool, account: TestAccount, sink: SinkStore
) -> None:
    other = await make_account(pool)
    child = await make_account(pool)
    await pool.execute("UPDATE accounts SET parent_id = $1 WHERE id = $2", account.id, child.id)
    mine, theirs = await send(sinking, account), await send(sinking, child)
    kept, of_child = sink.keep(mine), sink.keep(theirs)
    forged = sink.keep_from("b+" + "0" * 40 + "@bounces.mail.waybill.test")

    assert [row["id"] for row in await listed(sinking, account)] == [kept]
    assert [row["id"] for row in await listed(sinking, child)] == [of_child]
    assert await listed(sinking, other) == []
    assert await listed(sinking, other, f"?message={mine}") == []
    for name in (kept, forged, "19ab-1", "x", f"{RUN:x}-999999999"):
        for path in (f"/v1/local/sink/{name}", f"/v1/local/sink/{name}/raw"):
            assert (await sinking.get(path, other.token)).status == 404


async def test_pages_hold_each_mail_once_and_filters_narrow_them(
    sinking: Api, pool: asyncpg.Pool, account: TestAccount, sink: SinkStore
) -> None:
    other = await make_account(pool)
    mine, second, theirs = await send(sinking, account), await send(sinking, account), await send(sinking, other)
    kept = []
    for place in range(5):
        kept.append(sink.keep(mine, to=f"P{place}@people.test", place=place))
        sink.keep(theirs)
    last = sink.keep(second, to="p0@people.test")

    found: list[str] = []
    cursor = ""
    while True:
        page = (await sinking.get(f"/v1/local/sink?limit=2{cursor}", account.token)).json
        found += [row["id"] for row in page["data"]]
        assert page["hasMore"] == (page["nextCursor"] is not None)
        if not page["hasMore"]:
            break
        cursor = f"&before={page['nextCursor']}"

    assert found == [last, *kept[::-1]]
    assert [row["id"] for row in await listed(sinking, account, f"?message={mine}")] == kept[::-1]
    assert [row["id"] for row in await listed(sinking, account, "?recipient=P0@PEOPLE.test")] == [last, kept[0]]
    both = f"?message={mine}&recipient=p3@people.test"
    assert [row["id"] for row in await listed(sinking, account, both)] == [kept[3]]
    older = (await sinking.get(f"/v1/local/sink?message={mine}&limit=2", account.token)).json
    rest = await listed(sinking, account, f"?message={mine}&before={older['nextCursor']}")
    assert [row["id"] for row in rest] == kept[2::-1]


async def test_a_request_waits_for_a_mail_that_matches(sinking: Api, account: TestAccount, sink: SinkStore) -> None:
    message = await send(sinking, account)
    old = sink.keep(message, to="ann@people.test")

    waiting = asyncio.create_task(listed(sinking, account, f"?after={old}&recipient=ann@people.test&wait=30"))
    await asyncio.sleep(0.2)  # so that the mails arrive while the request waits
    sink.keep(message, to="bob@people.test")
    assert not waiting.done()
    new = sink.keep(message, to="ann@people.test")

    assert [row["id"] for row in await waiting] == [new]
    assert [row["id"] for row in await listed(sinking, account, "?recipient=ann@people.test&wait=30")] == [new, old]
    assert await listed(sinking, account, f"?after={new}&wait=1") == []


async def test_an_account_empties_the_sink_of_its_own_mail(
    sinking: Api, pool: asyncpg.Pool, account: TestAccount, sink: SinkStore, local: Settings
) -> None:
    other = await make_account(pool)
    mine, theirs = await send(sinking, account), await send(sinking, other)
    gone = [sink.keep(mine, to=f"p{place}@people.test", place=place) for place in range(3)]
    kept = sink.keep(theirs)

    answer = await sinking.delete("/v1/local/sink", account.token)

    assert answer.status == 204
    assert await listed(sinking, account) == []
    assert [row["id"] for row in await listed(sinking, other)] == [kept]
    assert [file for file in (local.state / "sink").rglob("*.eml") if file.stem in gone] == []
    assert not any(one.encode() in (local.state / "sink" / INDEX).read_bytes() for one in gone)
    new = sink.keep(mine)
    assert [row["id"] for row in await listed(sinking, account)] == [new]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("before=x", "before"),
        ("after=x", "after"),
        ("wait=31", "wait"),
        ("message=evt_0", "message"),
        ("limit=101", "limit"),
        ("recipient=", "recipient"),
    ],
)
async def test_a_bad_filter_is_refused_by_field(sinking: Api, account: TestAccount, query: str, field: str) -> None:
    answer = await sinking.get(f"/v1/local/sink?{query}", account.token)

    assert (answer.status, answer.error["field"]) == (400, field)


async def test_a_mail_whose_content_is_gone_is_listed_without_subject(
    sinking: Api, account: TestAccount, sink: SinkStore, local: Settings
) -> None:
    kept = sink.keep(await send(sinking, account))
    for file in (local.state / "sink" / "messages").rglob(f"{kept}.eml"):
        file.unlink()

    assert [row["subject"] for row in await listed(sinking, account)] == [None]
    assert (await sinking.get(f"/v1/local/sink/{kept}", account.token)).status == 404


async def test_a_hundred_thousand_mails_hide_none_and_bound_the_work_of_a_page(
    sinking: Api, account: TestAccount, sink: SinkStore, local: Settings
) -> None:
    message = await send(sinking, account)
    kept = sink.keep(message)
    index = local.state / "sink" / INDEX
    line = index.read_bytes().splitlines()[-1]
    known = msgspec.json.decode(line)
    sender = "b+" + "1" * 40 + "@bounces.mail.waybill.test"  # names no message
    others = [known | {"id": f"{RUN:x}-{number}", "from": sender} for number in range(sink.number + 1, 100_000)]
    sink.number = 100_000
    with index.open("ab") as file:
        file.write(b"".join(msgspec.json.encode(one) + b"\n" for one in others))

    by_message = await listed(sinking, account, f"?message={message}")
    page = (await sinking.get("/v1/local/sink", account.token)).json
    one = await sinking.get(f"/v1/local/sink/{kept}", account.token)

    assert [row["id"] for row in by_message] == [kept]
    assert (page["data"], page["hasMore"]) == ([], True)  # short: a page looks at 20,000 of them
    assert one.status == 200


async def test_live_mode_has_no_sink(
    settings: Settings, pool: asyncpg.Pool, http: aiohttp.ClientSession, account: TestAccount, tmp_path: Path
) -> None:
    person = await make_person(pool, account.id)
    live = structs.replace(settings, delivery="live", tls_cert=None)
    with serving(live, tmp_path / "api.log") as url:
        for path in ("/v1/local/sink", "/v1/local/sink/19ab-1", "/v1/local/sink/19ab-1/raw"):
            answer = await Api(url, http).get(path, account.token)
            assert (answer.status, answer.error["type"]) == (404, "not_found")
            assert "WAYBILL_DELIVERY" in answer.error["message"]
        assert (await Api(url, http).get("/v1/local/sink", person=person)).status == 404
        assert (await Api(url, http).delete("/v1/local/sink", account.token)).status == 404
