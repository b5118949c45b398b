"""`GET /v1/messages`: the list, its filters and its pages."""

import asyncio
import re
from datetime import UTC, datetime, timedelta

import asyncpg
import pytest

from engine.base import clock, ids
from engine.base.errors import ErrorType
from engine.base.settings import Settings
from engine.mail.address import Mailbox, parse_mailbox
from engine.sending.messages import rules, store
from engine.store.postgres import open_pool
from tests.conftest import NewDatabase
from tests.harness.accounts import TestAccount, add_domain, add_stream, make_account
from tests.harness.api import Api, Params, refuses
from tests.harness.emails import sent_id
from tests.harness.patience import PATIENCE_S
from tests.harness.settling import settle

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


async def send_once_known(api: Api, account: TestAccount, **fields: object) -> str:
    """The same with what was just made in the database, which the API's process learns within a second."""
    async with asyncio.timeout(PATIENCE_S):
        while (answer := await api.post("/v1/emails", account.token, account.email(**fields))).status != 202:
            await asyncio.sleep(0.05)
    return str(answer.json["id"])


async def listed(api: Api, account: TestAccount, params: Params | None = None) -> list[str]:
    """Ids of the first page."""
    answer = await api.get("/v1/messages", account.token, params=params)
    assert answer.status == 200, answer
    return [row["id"] for row in answer.json["data"]]


async def walked(api: Api, account: TestAccount, **params: str) -> list[str]:
    """Ids of all pages."""
    found: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        page = (await api.get("/v1/messages", account.token, params=params | cursor)).json
        found += [row["id"] for row in page["data"]]
        assert page["hasMore"] == (page["nextCursor"] is not None)
        if not page["hasMore"]:
            return found
        cursor = {"before": page["nextCursor"]}


async def test_a_row_tells_everything_about_its_message(api: Api, account: TestAccount) -> None:
    message = await sent_id(
        api,
        account,
        to=["ann@people.test", '"Bob, the 2nd" <bob@PEOPLE.test>'],
        cc=["Chloé <chloe@people.test>"],
        bcc=["dan@people.test"],
        replyTo="help@people.test",
        subject="Grüße",
        tags=["a", "b"],
        metadata={"order": "17"},
        attachments=[{"filename": "a.txt", "contentType": "text/plain", "content": "aGk="}],
    )
    (row,) = (await api.get("/v1/messages", account.token)).json["data"]

    assert TIME.fullmatch(row.pop("createdAt"))
    assert row.pop("sizeBytes") > 300
    (attachment,) = row.pop("attachments")
    assert attachment.pop("id").startswith("att_")
    assert attachment == {
        "filename": "a.txt",
        "content_type": "text/plain",
        "size_bytes": 2,
        "sha256": "8f434346648f6b96df89dda901c5176b10a6d83961dd3c1ac88b59b2dc327aa4",
    }
    waiting = {"status": "queued", "attempts": 0, "lastResponse": None, "nextAttemptAt": None}
    assert row == {
        "id": message,
        "status": "queued",
        "source": "api",
        "from": account.sender,
        "to": ["ann@people.test", '"Bob, the 2nd" <bob@people.test>'],
        "cc": ["Chloé <chloe@people.test>"],
        "bcc": ["dan@people.test"],
        "replyTo": "help@people.test",
        "subject": "Grüße",
        "stream": "transactional",
        "template": None,
        "templateVersion": None,
        "tags": ["a", "b"],
        "metadata": {"order": "17"},
        "scheduledAt": None,
        "deliveredAt": None,
        "resentFrom": None,
        "retainContent": True,
        "traceparent": None,
        "contentUntil": None,
        "recipients": [
            {"address": "ann@people.test", "kind": "to", **waiting},
            {"address": "bob@people.test", "kind": "to", **waiting},
            {"address": "chloe@people.test", "kind": "cc", **waiting},
            {"address": "dan@people.test", "kind": "bcc", **waiting},
        ],
    }


async def test_created_at_is_the_moment_of_acceptance(api: Api, account: TestAccount) -> None:
    before = clock.now()
    await sent_id(api, account)
    (row,) = (await api.get("/v1/messages", account.token)).json["data"]

    assert before <= clock.parse_iso(row["createdAt"]) <= clock.now()


async def test_an_empty_list_is_the_last_page(api: Api, account: TestAccount) -> None:
    answer = await api.get("/v1/messages", account.token)

    assert answer.status == 200
    assert answer.json == {"data": [], "nextCursor": None, "hasMore": False}


async def test_messages_come_newest_first_25_a_page(api: Api, account: TestAccount) -> None:
    sent = [await sent_id(api, account) for _ in range(26)]
    page = (await api.get("/v1/messages", account.token)).json

    assert [row["id"] for row in page["data"]] == sorted(sent, reverse=True)[:25]
    assert page["hasMore"] is True
    assert page["nextCursor"] == sorted(sent)[1]


async def test_the_last_page_has_no_cursor_even_when_it_is_full(api: Api, account: TestAccount) -> None:
    for _ in range(4):
        await sent_id(api, account)
    first = (await api.get("/v1/messages?limit=2", account.token)).json
    last = (await api.get(f"/v1/messages?limit=2&before={first['nextCursor']}", account.token)).json

    assert len(last["data"]) == 2
    assert (last["nextCursor"], last["hasMore"]) == (None, False)


async def test_pages_neither_skip_nor_repeat_while_messages_arrive(api: Api, account: TestAccount) -> None:
    old = {await sent_id(api, account) for _ in range(20)}
    stop = asyncio.Event()

    async def keep_sending() -> None:
        while not stop.is_set():
            await sent_id(api, account)

    async with asyncio.TaskGroup() as group:
        group.create_task(keep_sending())
        seen = await walked(api, account, limit="3")
        stop.set()

    assert len(seen) == len(set(seen))
    assert old <= set(seen)
    assert seen == sorted(seen, reverse=True)


async def test_a_cursor_stays_good_when_it_names_no_message_of_the_account(
    api: Api, account: TestAccount, pool: asyncpg.Pool
) -> None:
    stranger = await make_account(pool)
    mine = await sent_id(api, account)
    theirs = await sent_id(api, stranger)

    assert await listed(api, account, {"before": theirs}) == [mine]


@pytest.mark.parametrize("name", ["status", "domain", "limit"])
async def test_a_filter_of_null_is_refused_and_does_not_open_the_list(
    api: Api, account: TestAccount, name: str
) -> None:
    answer = await api.get(f"/v1/messages?{name}=null", account.token)

    assert (answer.status, answer.json.get("error", {}).get("field")) == (400, name)


async def test_a_list_holds_only_the_accounts_own_messages(api: Api, account: TestAccount, pool: asyncpg.Pool) -> None:
    stranger = await make_account(pool)
    fields = {"to": "shared@people.test", "subject": "same", "tags": ["same"], "metadata": {"same": "same"}}
    mine = await sent_id(api, account, **fields)
    theirs = await sent_id(api, stranger, **fields)

    for params in ({}, {"to": "shared@people.test"}, {"search": "same"}, {"tag": "same"}, {"metadata": "same:same"}):
        assert await listed(api, account, params) == [mine]
        assert await listed(api, stranger, params) == [theirs]
    assert await listed(api, account, {"domain": stranger.domain}) == []


async def test_status_filters_and_shows_what_became_of_each_recipient(
    api: Api, account: TestAccount, pool: asyncpg.Pool
) -> None:
    waiting = await sent_id(api, account)
    delivered = await sent_id(api, account)
    bounced = await sent_id(api, account, to=["ok@people.test", "gone@people.test"])
    deferred = await sent_id(api, account)
    await settle(pool, delivered)
    await settle(pool, bounced, ("gone@people.test", 550, "5.1.1 no such user"))
    await settle(pool, deferred, ("ann@people.test", 451, "4.3.0 later"), again_after=timedelta(minutes=1))

    assert await listed(api, account, {"status": "queued"}) == [waiting]
    assert await listed(api, account, {"status": "delivered"}) == [delivered]
    assert await listed(api, account, {"status": "bounced"}) == [bounced]
    assert await listed(api, account, {"status": "sending"}) == [deferred]
    assert await listed(api, account, {"status": "complained"}) == []
    rows = {row["id"]: row for row in (await api.get("/v1/messages", account.token)).json["data"]}
    assert TIME.fullmatch(rows[delivered]["deliveredAt"])
    assert [(one["status"], one["attempts"]) for one in rows[bounced]["recipients"]] == [
        ("delivered", 1),
        ("bounced", 1),
    ]
    assert "5.1.1 no such user" in rows[bounced]["recipients"][1]["lastResponse"]
    assert TIME.fullmatch(rows[deferred]["recipients"][0]["nextAttemptAt"])


@pytest.mark.parametrize("status", ["queued", "sending", "delivered", "bounced", "complained", "failed", "rejected",
                                    "scheduled", "canceled"])  # fmt: skip
async def test_each_of_the_nine_statuses_is_a_filter(api: Api, account: TestAccount, status: str) -> None:
    assert await listed(api, account, {"status": status}) == []


TIMES = [
    "2026-11-20", "2026-11-20T08:00:00+00:00", "2026-11-20T08:00:00", "2026-02-30T08:00:00Z", "2026-11-20T25:00:00Z",
    "yesterday", "", "2026-11-20t08:00:00z", "1763625600",
]  # fmt: skip
WRONG = {
    "status": ["open", "", "Queued", "duplicate"], "search": ["", "x" * 201], "from": TIMES, "until": TIMES,
    "stream": ["Receipts", "a--b", "-a", "", "x" * 65], "domain": ["a b"],
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
async def test_a_wrong_filter_is_refused_by_name(api: Api, account: TestAccount, name: str) -> None:
    for text in WRONG[name]:
        assert refuses(await api.get("/v1/messages", account.token, params={name: text}), name), text
    assert await listed(api, account, {"search": "x" * 200}) == []


async def test_to_matches_any_recipient_in_any_case(api: Api, account: TestAccount) -> None:
    first = await sent_id(api, account, to="Ann Lee <Ann.Lee@People.test>")
    second = await sent_id(api, account, cc=["ann.lee@people.test"])
    third = await sent_id(api, account, bcc=["ANN.LEE@people.test"])
    await sent_id(api, account, to="joann.lee@people.test")

    for written in ("ann.lee@people.test", "ANN.LEE@PEOPLE.TEST", "Ann.Lee@people.test"):
        assert await listed(api, account, {"to": written}) == [third, second, first]
    assert await walked(api, account, to="ann.lee@people.test", limit="1") == [third, second, first]


async def test_to_finds_an_internationalised_domain_in_both_spellings(api: Api, account: TestAccount) -> None:
    message = await sent_id(api, account, to="info@bücher.test")

    assert await listed(api, account, {"to": "info@bücher.test"}) == [message]
    assert await listed(api, account, {"to": "info@xn--bcher-kva.test"}) == [message]


@pytest.mark.parametrize(
    "text", ["ann", "a@", "Ann <ann@people.test>", "<ann@people.test>", "a@b.test,c@d.test", "%@%", ""]
)
async def test_to_takes_one_bare_address(api: Api, account: TestAccount, text: str) -> None:
    assert refuses(await api.get("/v1/messages", account.token, params={"to": text}), "to")


async def test_search_looks_at_subject_sender_and_recipients(api: Api, account: TestAccount) -> None:
    subject = await sent_id(api, account, subject="Your Invoice 2026")
    sender = await sent_id(api, account, **{"from": f"Invoice desk <billing@{account.domain}>"})
    recipient = await sent_id(api, account, bcc=["invoices@people.test"])
    named = await sent_id(api, account, to="Ms Invoice <m@people.test>")
    await sent_id(api, account, text="the word invoice in the text only")

    assert await listed(api, account, {"search": "invoice"}) == [named, recipient, sender, subject]
    assert await listed(api, account, {"search": "INVOICE 2026"}) == [subject]
    assert await walked(api, account, search="invoice", limit="1") == [named, recipient, sender, subject]


@pytest.mark.parametrize("text", ["100%", "a_b", "back\\slash", "%", "_", "\\", "'; DROP TABLE messages; --", "(x|y)*"])
async def test_search_takes_wildcards_literally(api: Api, account: TestAccount, text: str) -> None:
    for other in ("100 of all", "axb", "backslash", "plain"):
        await sent_id(api, account, subject=other, to="ann@people.test")
    message = await sent_id(api, account, subject=f"is {text} here", to="ann@people.test")

    assert await listed(api, account, {"search": text}) == [message]


async def test_search_folds_the_case_of_letters_beyond_ascii(api: Api, account: TestAccount) -> None:
    message = await sent_id(api, account, subject="ÄRGER mit der Öde")

    for text in ("ÄRGER", "ärger", "Ö", "Öde", "A\u0308RGER"):
        assert await listed(api, account, {"search": text}) == [message]


async def test_domain_is_the_sending_domain(api: Api, account: TestAccount, pool: asyncpg.Pool) -> None:
    other = f"other-{account.domain}"
    await add_domain(pool, account.id, other)
    first = await sent_id(api, account)
    second = await send_once_known(api, account, **{"from": f"x@{other}"})

    assert await listed(api, account, {"domain": account.domain}) == [first]
    assert await listed(api, account, {"domain": other.upper()}) == [second]


async def test_stream_filters(api: Api, account: TestAccount, pool: asyncpg.Pool) -> None:
    await add_stream(pool, account.id, "receipts")
    first = await sent_id(api, account)
    second = await send_once_known(api, account, stream="receipts")

    assert await listed(api, account, {"stream": "transactional"}) == [first]
    assert await listed(api, account, {"stream": "receipts"}) == [second]


async def test_repeated_tags_must_all_be_on_the_message(api: Api, account: TestAccount) -> None:
    await sent_id(api, account)
    red = await sent_id(api, account, tags=["red"])
    both = await sent_id(api, account, tags=["blue", 'odd "tag", [x]', "red"])

    assert await listed(api, account, [("tag", "red")]) == [both, red]
    assert await listed(api, account, [("tag", "red"), ("tag", "blue")]) == [both]
    assert await listed(api, account, [("tag", 'odd "tag", [x]')]) == [both]
    assert await listed(api, account, [("tag", "re")]) == []
    assert refuses(await api.get("/v1/messages?tag=", account.token), "tag[0]")
    assert refuses(await api.get("/v1/messages?" + "&".join(["tag=x"] * 11), account.token), "tag")


async def test_metadata_matches_one_entry_exactly(api: Api, account: TestAccount) -> None:
    first = await sent_id(api, account, metadata={"order": "17", "url": "https://shop.test/?a=1:2"})
    await sent_id(api, account, metadata={"order": "170"})
    empty = await sent_id(api, account, metadata={"note": ""})

    assert await listed(api, account, {"metadata": "order:17"}) == [first]
    assert await listed(api, account, {"metadata": "url:https://shop.test/?a=1:2"}) == [first]
    assert await listed(api, account, {"metadata": "note:"}) == [empty]
    assert await listed(api, account, {"metadata": "17:order"}) == []
    named = await sent_id(api, account, metadata={"shop:order": "a:1"})
    assert await listed(api, account, {"metadata": "shop:order:a:1"}) == [named]


async def test_metadata_has_the_form_name_value_within_its_bounds(api: Api, account: TestAccount) -> None:
    longest = await sent_id(api, account, metadata={"n" * 64: "v" * 512})

    assert await listed(api, account, {"metadata": "n" * 64 + ":" + "v" * 512}) == [longest]
    for text in ("order", ":17", "", "n" * 65 + ":v", "n:" + "v" * 513, "n" * 64 + ":" + "v" * 513):
        assert refuses(await api.get("/v1/messages", account.token, params={"metadata": text}), "metadata")


async def test_from_is_inclusive_and_until_is_exclusive(api: Api, account: TestAccount) -> None:
    first = await sent_id(api, account)
    await asyncio.sleep(0.01)
    second = await sent_id(api, account)
    at = rules.made_at(ids.parse_id(ids.Kind.MESSAGE, second))
    just_before = clock.iso(at - timedelta(milliseconds=1))

    assert await listed(api, account, {"from": clock.iso(at)}) == [second]
    assert await listed(api, account, {"until": clock.iso(at)}) == [first]
    assert await listed(api, account, {"from": just_before}) == [second]
    assert await listed(api, account, {"from": clock.iso(at + timedelta(milliseconds=1))}) == []
    assert await listed(api, account, {"from": just_before, "until": clock.iso(at)}) == []
    assert await listed(api, account, {"from": "0001-01-01T00:00:00Z", "until": "9999-12-31T23:59:59Z"}) == [
        second,
        first,
    ]
    assert await walked(api, account, until="9999-12-31T23:59:59.999999999Z", limit="1") == [second, first]


async def test_filters_combine(api: Api, account: TestAccount) -> None:
    same = {"to": "zoe@people.test", "subject": "Ticket 5", "tags": ["t"], "metadata": {"k": "v"}}
    wanted = await sent_id(api, account, **same)
    elsewhere = await sent_id(api, account, **same | {"to": "x@people.test"})
    for change in ({"subject": "Other"}, {"tags": ["u"]}, {"metadata": {"k": "w"}}):
        await sent_id(api, account, **same | change)
    now = datetime.now(UTC)
    params = {
        "limit": "5",
        "status": "queued",
        "to": "zoe@people.test",
        "search": "ticket",
        "domain": account.domain,
        "stream": "transactional",
        "tag": "t",
        "metadata": "k:v",
        "from": clock.iso(now - timedelta(hours=1)),
        "until": clock.iso(now + timedelta(hours=1)),
    }

    assert await listed(api, account, params) == [wanted]
    assert await listed(api, account, params | {"status": "delivered"}) == []
    del params["to"]
    assert await listed(api, account, params) == [elsewhere, wanted]
    assert await walked(api, account, **params | {"limit": "1"}) == [elsewhere, wanted]


@pytest.mark.parametrize("name", ["search", "tag", "metadata", "to", "domain", "stream"])
async def test_nul_in_a_filter_is_refused(api: Api, account: TestAccount, name: str) -> None:
    answer = await api.get(f"/v1/messages?{name}=a:b%00c", account.token)

    assert answer.status == 400
    assert answer.error["field"].partition("[")[0] == name


async def test_a_list_that_takes_too_long_is_cut_off_and_says_what_to_narrow(
    new_database: NewDatabase, settings: Settings
) -> None:
    database = await open_pool(await new_database(), name="tests", largest=2)
    account = ids.uuid7()
    wanted = rules.filters(before=None, status=None, to=None, search="x", domain=None, stream=None, tags=(),
                           metadata=None, since=None, until=None)  # fmt: skip
    async with database.acquire() as holder, holder.transaction():
        await holder.execute("LOCK TABLE messages IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(TimeoutError):
            await store.page(database, account, wanted, limit=1, timeout_s=0.3)
    assert (await store.page(database, account, wanted, limit=1)).rows == []  # the connection is fit again
    await database.close()

    refusal = rules.too_slow(wanted)
    assert refusal is not None
    assert (refusal.kind, refusal.fields["field"]) == (ErrorType.INVALID_REQUEST, "search")


@pytest.mark.parametrize("name", [
    "", "Ann", "Ann Lee", "Lee, Ann", 'The "Boss"', "back\\slash", "J. Doe", "Chloé", "a@b", "(x)", "semi;colon",
    "<angle>", "O'Hara", '"', "\\", '\\"',
])  # fmt: skip
def test_a_written_recipient_reads_back_as_the_same(name: str) -> None:
    written = rules.written(name or None, "ann@people.test")

    assert parse_mailbox(written) == Mailbox(name, "ann@people.test")
