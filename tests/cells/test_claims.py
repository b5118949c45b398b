"""What must be unique exists in one cell; new accounts begin in an open one."""

import asyncio
from urllib.parse import urlsplit
from uuid import uuid4

import asyncpg
import pytest
from msgspec import structs

from engine.base import ids
from engine.base.settings import Settings
from engine.cells import claims
from engine.cells.directory import Cell, Directory
from engine.cells.reconcile import Reconciled, reconcile
from engine.store.database_errors import DatabaseUnavailable
from ops.local.dns import Responder
from tests.cells.conftest import TestCell, TestCells
from tests.conftest import NewDatabase
from tests.harness.accounts import make_account
from tests.harness.api import Answer, refused
from tests.harness.domains import Place, new_name
from tests.harness.people import PASSWORD, make_person
from tests.harness.provider import Browser, Person, TestProvider


def fresh() -> str:
    return f"{ids.encode(ids.uuid7())}@people.test"


async def people_with(cell: TestCell, email: str) -> int:
    found: int = await cell.pool.fetchval("SELECT count(*) FROM users WHERE email = $1", email)
    return found


async def test_a_sign_up_begins_in_an_open_cell_and_is_claimed(cells: TestCells) -> None:
    await cells.directory.set_state("one", "closed")
    try:
        await asyncio.sleep(3)  # fronts read the cells every two seconds
        email = fresh()
        signed = await cells.front.post("/v1/auth/signup", json={"email": email, "password": PASSWORD})
    finally:
        await cells.directory.set_state("one", "open")

    assert signed.status == 201, signed.body
    claim = await cells.directory.claimed("email", email)
    assert claim is not None
    assert claim.cell == "two"
    assert await people_with(cells.two, email) == 1
    account = await cells.two.pool.fetchval(
        "SELECT m.account_id FROM members m JOIN users u ON u.id = m.user_id WHERE u.email = $1", email
    )
    placement = await cells.directory.cell_of(account)
    assert placement is not None
    assert placement.cell == "two"
    entered = await cells.front.post("/v1/auth/login", json={"email": email, "password": PASSWORD})
    assert entered.status == 200, entered.body


async def test_a_second_sign_up_with_the_address_makes_nobody(cells: TestCells) -> None:
    email = fresh()
    body = {"email": email, "password": PASSWORD}
    assert (await cells.one.api.post("/v1/auth/signup", json=body)).status == 201

    for api in (cells.front, cells.two.api, cells.one.api):
        assert (await api.post("/v1/auth/signup", json=body)).status == 201
    assert (await people_with(cells.one, email), await people_with(cells.two, email)) == (1, 0)


async def test_a_refused_sign_up_blocks_no_second_try(cells: TestCells) -> None:
    email = fresh()
    await cells.directory.claim("email", email, cell="two", holder=ids.uuid7())  # of a try that never committed

    signed = await cells.front.post("/v1/auth/signup", json={"email": email, "password": PASSWORD})
    assert signed.status == 201
    assert await people_with(cells.two, email) == 1


async def test_an_invited_person_signs_up_in_the_cell_of_the_invitation(cells: TestCells) -> None:
    email = fresh()
    account = await make_account(cells.two.pool)
    owner = await make_person(cells.two.pool, account.id)
    invited = await cells.front.post("/v1/team/invites", json={"email": email, "role": "member"}, person=owner)
    assert invited.status == 201, invited.body

    assert (await cells.front.post("/v1/auth/signup", json={"email": email, "password": PASSWORD})).status == 201
    assert await people_with(cells.two, email) == 1


async def test_a_person_of_another_cell_is_not_invited(cells: TestCells) -> None:
    email = fresh()
    await cells.directory.claim("email", email, cell="two", holder=ids.uuid7())
    account = await make_account(cells.one.pool)
    owner = await make_person(cells.one.pool, account.id)

    invited = await cells.front.post("/v1/team/invites", json={"email": email, "role": "member"}, person=owner)
    assert refused(invited) == (409, "conflict")
    assert "operator" in invited.error["message"]


async def test_an_existing_installation_is_placed_and_what_is_gone_is_released(
    cells: TestCells, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = await make_account(cells.one.pool)
    person = await make_person(cells.one.pool, account.id)
    done = await reconcile(cells.one.pool, cells.directory, "one")
    assert done.placed >= 1
    assert done.claimed >= 2
    for kind, name in (("email", person.email), ("domain", account.domain)):
        claim = await cells.directory.claimed(kind, name)
        assert claim is not None
        assert claim.cell == "one"

    monkeypatch.setattr("engine.cells.reconcile.SETTLED_S", 0.0)
    await cells.directory.claim("domain", "gone.test", cell="one", holder=account.id)
    gone = ids.uuid7()
    await cells.directory.place(gone, "one")
    done = await reconcile(cells.one.pool, cells.directory, "one")
    assert done.removed >= 1
    assert done.released >= 1
    assert await cells.directory.claimed("domain", "gone.test") is None
    assert await cells.directory.cell_of(gone) is None
    assert await cells.directory.cell_of(account.id) is not None
    assert await reconcile(cells.one.pool, cells.directory, "one") == Reconciled()


def within(url: str) -> str:
    """Return a URL without its host: all cells share the name of the fronts, which tests have under ports."""
    split = urlsplit(url)
    return f"{split.path}?{split.query}"


async def sign_in(browser: Browser, provider: TestProvider, person: Person, first: str) -> Answer:
    """Follow the redirects of a sign-in that begins in the cell `first`, through the front."""
    browser.cookies["svc_cell"] = first
    answer = await browser.get("/v1/auth/idp/start")
    for _ in range(2):
        answer = await browser.get(within(provider.authorize(answer.headers["location"], person)))
        assert answer.status == 302, answer.body
        if not answer.headers["location"].split("?")[0].endswith("/v1/auth/idp/start"):
            break
        answer = await browser.get(within(answer.headers["location"]))
    return answer


async def test_a_person_of_an_identity_provider_signs_in_wherever_they_begin(
    cells: TestCells, provider: TestProvider
) -> None:
    ann, browser, other = Person.new(), Browser(cells.front), Browser(cells.front)

    await sign_in(browser, provider, ann, "two")
    first = (await browser.me())["user"]
    claim = await cells.directory.claimed("identity", f"{provider.issuer} {ann.subject}")
    assert claim is not None
    assert claim.cell == "two"

    await sign_in(other, provider, ann, "one")
    assert (await other.me())["user"] == first
    assert other.cookies["svc_cell"] == "two"
    assert await people_with(cells.one, ann.email or "") == 0


async def test_a_cell_that_the_directory_lacks_claims_nothing_until_it_is_added(
    settings: Settings, new_directory: NewDatabase
) -> None:
    url = await new_directory()
    claims.configure(structs.replace(settings, directory_url=url, cell="three"))
    try:
        with pytest.raises(DatabaseUnavailable, match="cells add"):
            await claims.place(uuid4())
        directory = await Directory.open(url)
        await directory.put_cell(Cell("three", "http://three.test", None, None, "open", 100))
        await directory.close()
        await claims.place(uuid4())
    finally:
        await claims.close()
        claims.configure(settings)


async def test_a_domain_that_another_cell_has_is_not_verified(
    cells: TestCells, pool: asyncpg.Pool, settings: Settings
) -> None:
    """This process is part of a cell for the time of the test."""
    claims.configure(structs.replace(settings, directory_url=cells.directory_url, cell="one"))
    try:
        async with Responder() as zone:
            place = Place(pool, settings, zone)
            account, name = await place.account(), new_name()
            await cells.directory.claim("domain", name, cell="two", holder=account.id)
            domain = await place.add(account, name)
            await place.publish(domain)
            held = await place.verify(account, domain)
            assert held.domain.status == "pending"
            assert held.notice is not None
            assert "another account has verified this name" in held.notice

            await cells.directory.release([("domain", name)], "two", older_s=0)
            assert (await place.verify(account, domain)).domain.status == "verified"
            claim = await cells.directory.claimed("domain", name)
            assert claim is not None
            assert (claim.cell, claim.holder) == ("one", account.id)
    finally:
        await claims.close()
        claims.configure(settings)
