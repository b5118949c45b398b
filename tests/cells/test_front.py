"""Requests through a front reach the cell of their account, whatever they name it by."""

import asyncio
import hashlib

import pytest

from engine.base import clock, ids
from engine.base.secrets import random_base62
from engine.cells.locator import MAX_UNKNOWN_PER_S
from engine.mail import unsubscribe_token
from engine.people.api_keys import rules as keys
from tests.cells.conftest import TestCell, TestCells
from tests.harness.accounts import PEPPER, TestAccount, make_account
from tests.harness.api import refused
from tests.harness.patience import PATIENCE_S
from tests.harness.people import PASSWORD, make_person
from tests.harness.sse import following


async def placed(cells: TestCells, cell: TestCell) -> TestAccount:
    account = await make_account(cell.pool)
    await cells.directory.place(account.id, cell.name)
    return account


async def test_a_key_reaches_its_cell(cells: TestCells) -> None:
    for cell in (cells.one, cells.two):
        account = await placed(cells, cell)

        sent = await cells.front.post("/v1/emails", account.token, account.email())
        assert sent.status == 202, sent.body
        assert (await cell.api.get(f"/v1/emails/{sent.json['id']}", account.token)).status == 200
        assert (await cells.front.get("/v1/me", account.token)).json["id"] == account.public_id


async def test_an_account_that_was_never_placed_is_found_too(cells: TestCells) -> None:
    account = await make_account(cells.two.pool)

    assert (await cells.front.get("/v1/me", account.token)).status == 200


async def test_a_key_of_postmarks_clients_reaches_its_cell(cells: TestCells) -> None:
    account = await placed(cells, cells.two)
    body = {"From": account.sender, "To": "ann@people.test", "Subject": "Hello", "TextBody": "Hello!"}

    sent = await cells.front.post("/email", json=body, headers={"X-Postmark-Server-Token": account.token})
    assert sent.status == 200, sent.body


async def test_an_unknown_key_gets_the_401_of_a_cell(cells: TestCells) -> None:
    assert refused(await cells.front.get("/v1/me", keys.new_key().token)) == (401, "unauthorized")
    assert refused(await cells.front.get("/v1/me", "nothing")) == (401, "unauthorized")
    assert refused(await cells.front.get("/v1/me")) == (401, "unauthorized")


async def test_a_flood_of_unknown_keys_is_refused_and_known_ones_work(cells: TestCells) -> None:
    account = await placed(cells, cells.one)
    assert (await cells.front.get("/v1/me", account.token)).status == 200

    stranger = {"X-Forwarded-For": "198.51.100.7"}
    unknown = [cells.front.get("/v1/me", keys.new_key().token, headers=stranger) for _ in range(10 * MAX_UNKNOWN_PER_S)]
    answers = await asyncio.gather(*unknown)
    assert {one.status for one in answers} <= {401, 429}
    assert (await cells.front.get("/v1/me", account.token, headers=stranger)).status == 200
    assert (await cells.front.get("/v1/me", keys.new_key().token)).status == 401  # from another network


async def test_signing_in_and_the_session_reach_the_cell_of_the_person(cells: TestCells) -> None:
    account = await placed(cells, cells.two)
    person = await make_person(cells.two.pool, account.id)
    await cells.directory.claim("email", person.email, cell="two", holder=person.id)

    entered = await cells.front.post("/v1/auth/login", json={"email": person.email.upper(), "password": PASSWORD})
    assert entered.status == 200, entered.body
    assert entered.cookie("svc_cell") == "two"
    cookie = {"Cookie": f"svc_session={entered.cookie('svc_session')}"}
    me = await cells.front.get("/v1/auth/me", headers=cookie)
    assert me.json["account"]["id"] == account.public_id
    assert (await cells.front.get("/v1/domains", person=person)).status == 200
    assert (await cells.one.api.get("/v1/domains", person=person)).status == 401


async def test_a_forged_hint_gives_nothing(cells: TestCells) -> None:
    account = await placed(cells, cells.one)

    for hint in ("two", "none", "../one", "one"):
        mine = await cells.front.get("/v1/me", account.token, headers={"Cookie": f"svc_cell={hint}"})
        assert mine.status == 200
        nobody = await cells.front.get("/v1/me", headers={"Cookie": f"svc_cell={hint}"})
        assert nobody.status == 401


async def test_internal_operations_are_out_of_reach(cells: TestCells) -> None:
    account = await placed(cells, cells.one)
    question = {"kind": "account", "key": str(account.id)}

    for path in ("/internal/whose", "/internal%2fwhose", "/%69nternal/whose"):
        assert (await cells.front.post(path, account.token, question)).status == 404
    assert (await cells.one.api.post("/internal/whose", account.token, question)).status == 404
    assert (await cells.one.api.post("/internal/whose", None, question)).status == 404


async def test_an_unsubscribe_link_reaches_its_cell(cells: TestCells) -> None:
    account = await placed(cells, cells.two)
    link = ids.uuid7()
    await cells.two.pool.execute(
        "INSERT INTO unsubscribe_links (id, account_id, address, created_at) VALUES ($1, $2, $3, $4)",
        link, account.id, "ann@people.test", clock.now(),
    )  # fmt: skip
    path = f"/u/{unsubscribe_token.token(unsubscribe_token.key_of(PEPPER), link)}"

    assert (await cells.front.get(path)).status == 200
    assert (await cells.front.post(path, body=b"List-Unsubscribe=One-Click")).status == 200
    held = await cells.front.get("/v1/suppressions/ann@people.test", account.token)
    assert held.status == 200


async def test_a_token_in_a_mailed_link_reaches_its_cell(cells: TestCells) -> None:
    account = await placed(cells, cells.two)
    person = await make_person(cells.two.pool, account.id, verified=False)
    token = random_base62(43)
    await cells.two.pool.execute(
        "INSERT INTO single_use_tokens (digest, purpose, user_id, detail, created_at, expires_at)"
        " VALUES ($1, 'verify_email', $2, $3, now(), now() + interval '1 hour')",
        hashlib.sha256(token.encode()).digest(), person.id, person.email,
    )  # fmt: skip

    done = await cells.front.post("/v1/auth/verify-email", json={"token": token, "password": PASSWORD})
    assert done.status < 300, done.body


async def test_an_event_of_the_payment_provider_reaches_the_cell_of_its_checkout(cells: TestCells) -> None:
    account = await placed(cells, cells.two)
    body = f'{{"checkout":"chk_{ids.encode(ids.uuid7())}","account":"{account.public_id}"}}'.encode()

    answer = await cells.front.post("/v1/billing/payprov/webhook", body=body)
    assert answer.status in (400, 401)  # of the cell: the signature is missing


async def test_files_and_pages_come_from_any_cell(cells: TestCells) -> None:
    for path in ("/", "/docs", "/v1/openapi.json", "/v1/instance", "/healthz", "/readyz"):
        answer = await cells.front.get(path)
        assert answer.status in (200, 302, 303, 307, 308), (path, answer.status)


async def test_bodies_flow_in_both_directions(cells: TestCells) -> None:
    account = await placed(cells, cells.one)
    text = "x" * 300_000

    sent = await cells.front.post("/v1/emails", account.token, account.email(text=text))
    assert sent.status == 202, sent.body
    raw = await cells.front.get(f"/v1/messages/{sent.json['id']}/raw", account.token)
    assert raw.status == 200
    assert len(raw.body) > 300_000
    head = await cells.front.request("HEAD", "/healthz")
    assert (head.status, head.body) == (200, b"")


async def test_a_tail_flows_and_ends_with_its_client(cells: TestCells) -> None:
    account = await placed(cells, cells.two)
    async with following(cells.front, account.token) as tail:
        assert tail.status == 200
        sent = await cells.front.post("/v1/emails", account.token, account.email())
        event = await tail.until("message")
        assert event.data["messageId"] == sent.json["id"]


async def test_head_and_expect_work_as_without_a_front(cells: TestCells) -> None:
    account = await placed(cells, cells.two)
    sent = await cells.front.post("/v1/emails", account.token, account.email(), headers={"Expect": "100-continue"})
    assert sent.status == 202, sent.body
    direct, through = [await api.request("HEAD", "/docs") for api in (cells.two.api, cells.front)]
    assert (through.status, through.body) == (direct.status, b"")
    assert int(through.headers["content-length"]) > 0 < int(direct.headers["content-length"])


async def test_a_given_request_id_reaches_the_cell_and_comes_back(cells: TestCells) -> None:
    account = await placed(cells, cells.two)
    answer = await cells.front.get("/v1/me", account.token, headers={"X-Request-Id": "trace-12345678"})
    assert answer.headers["x-request-id"] == "trace-12345678"


async def test_the_cell_sees_the_address_of_the_client(cells: TestCells) -> None:
    account = await placed(cells, cells.two)
    await cells.two.pool.execute("UPDATE api_keys SET networks = '{192.0.2.0/24}' WHERE account_id = $1", account.id)
    here = await cells.front.get("/v1/me", account.token)
    there = await cells.front.get("/v1/me", account.token, headers={"X-Forwarded-For": "192.0.2.7"})
    assert (here.status, there.status) == (401, 200)  # the test itself is a proxy that the cells trust


async def test_a_moving_account_waits_and_others_do_not(cells: TestCells) -> None:
    moving, other = await placed(cells, cells.one), await placed(cells, cells.one)
    for account in (moving, other):
        assert (await cells.front.get("/v1/me", account.token)).status == 200
    await cells.directory.begin_move([moving.id], source="one", to="two")
    await asyncio.sleep(1)  # fronts hear of it within half a second

    waiting = asyncio.create_task(cells.front.get("/v1/me", moving.token))
    assert (await cells.front.get("/v1/me", other.token)).status == 200
    assert not waiting.done()
    await cells.directory.cancel_move([moving.id])
    assert (await waiting).status == 200


async def test_a_moved_account_is_served_by_its_new_cell(cells: TestCells) -> None:
    account = await placed(cells, cells.one)
    assert (await cells.front.get("/v1/me", account.token)).status == 200
    began = await cells.directory.begin_move([account.id], source="one", to="two")
    await cells.directory.finish_move([account.id], [], to="two", began=began)

    async with asyncio.timeout(PATIENCE_S):  # the new cell has no rows of it in this test
        while (await cells.front.get("/v1/me", account.token)).status != 401:
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("length", [0, 1, 400])
async def test_a_second_request_in_a_body_never_reaches_a_cell(cells: TestCells, length: int) -> None:
    """With `Content-Length` and chunks the chunks count, and only they are passed on."""
    account = await placed(cells, cells.one)
    hidden = f"GET /v1/hidden{length} HTTP/1.1\r\nHost: x\r\n\r\n"
    fields = f"Content-Length: {length}\r\nTransfer-Encoding: chunked\r\nConnection: close"
    host, _, port = cells.front.base_url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(
        f"POST /v1/emails HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {account.token}\r\n{fields}\r\n\r\n"
        f"{len(hidden):x}\r\n{hidden}\r\n0\r\n\r\n".encode()
    )
    answer = await asyncio.wait_for(reader.read(), PATIENCE_S)
    writer.close()
    assert answer.startswith((b"HTTP/1.1 400", b"HTTP/1.1 415"))
    assert answer.count(b"HTTP/1.1 ") == 1
