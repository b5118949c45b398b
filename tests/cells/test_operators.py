"""Operators see all cells, and act in a cell where they have no session."""

from datetime import timedelta

import pytest

from api.http import visiting_operator
from api.http.visiting_operator import LIFETIME, Errand
from engine.base import clock
from engine.people.people import store as people
from engine.people.sessions.rules import Device
from engine.people.sessions.session_auth import SessionAuth
from tests.cells.conftest import TestCells
from tests.harness.accounts import PEPPER, make_account
from tests.harness.operators import ADDRESS
from tests.harness.people import TestPerson, make_person


@pytest.fixture(scope="module")
async def operator(cells: TestCells) -> TestPerson:
    """Return the operator, whose session is in the first cell."""
    account = await make_account(cells.one.pool)
    person = await make_person(cells.one.pool, account.id, "member", email=ADDRESS)
    await people.SET_OPERATOR.execute(cells.one.pool, person.id, clock.now())
    return person


async def test_the_operator_sees_all_cells(cells: TestCells, operator: TestPerson) -> None:
    shown = await cells.front.get("/v1/operator/cells", person=operator)
    assert shown.status == 200, shown.body
    one, two = shown.json["data"]
    assert (one["name"], one["state"], one["own"]) == ("one", "open", True)
    assert (two["name"], two["own"], two["figures"]["queued"]) == ("two", False, 0)


async def test_the_operator_reads_and_changes_accounts_of_a_chosen_cell(cells: TestCells, operator: TestPerson) -> None:
    account = await make_account(cells.two.pool)
    path = f"/v1/operator/accounts/{account.public_id}"
    there = {"X-Waybill-Cell": "two"}

    assert (await cells.front.get(path, person=operator)).status == 404
    assert (await cells.front.get(path, person=operator, headers=there)).status == 200
    done = await cells.front.post(f"{path}/suspend", json={"reason": "they asked"}, person=operator, headers=there)
    assert done.status == 200, done.body
    status = await cells.two.pool.fetchval("SELECT status FROM accounts WHERE id = $1", account.id)
    assert status == "suspended"


async def test_only_operators_choose_a_cell(cells: TestCells, operator: TestPerson) -> None:
    account = await make_account(cells.one.pool)
    owner = await make_person(cells.one.pool, account.id)
    there = {"X-Waybill-Cell": "two"}

    assert (await cells.front.get("/v1/operator/accounts", person=owner, headers=there)).status == 404
    assert (await cells.front.get("/v1/operator/accounts", headers=there)).status == 401
    unknown = await cells.front.get("/v1/operator/accounts", person=operator, headers={"X-Waybill-Cell": "three"})
    assert unknown.status == 404
    no_token = {**there, "X-CSRF-Token": "forged"}
    path = f"/v1/operator/accounts/{account.public_id}/suspend"
    forged = await cells.front.post(path, json={"reason": "they asked"}, person=operator, headers=no_token)
    assert forged.status == 403
    assert (await cells.front.get("/v1/me", person=owner, headers=there)).status == 200  # of their own cell


async def test_a_statement_holds_for_one_request_and_a_moment(cells: TestCells, operator: TestPerson) -> None:
    person = await SessionAuth(cells.one.pool, PEPPER).person(operator.secret, Device.of("127.0.0.1", "tests"))
    assert person is not None
    at = clock.machine_now()
    errand = Errand("GET", "/v1/operator/accounts", "two")
    made = visiting_operator.vouch(PEPPER, person, errand, at)
    headers = {visiting_operator.HEADER: made}

    assert visiting_operator.person_of(PEPPER, made, errand, at) == person
    assert visiting_operator.person_of(PEPPER, made, errand, at + LIFETIME + timedelta(seconds=1)) is None
    for other in (
        Errand("POST", errand.path, "two"),
        Errand("GET", "/v1/operator/nodes", "two"),
        Errand("GET", errand.path, "one"),
    ):
        assert visiting_operator.person_of(PEPPER, made, other, at) is None
    assert (await cells.two.api.get("/v1/operator/accounts", headers=headers)).status == 200
    assert (await cells.two.api.get("/v1/operator/nodes", headers=headers)).status == 401
    assert (await cells.one.api.get("/v1/operator/accounts", headers=headers)).status == 401
    assert (await cells.two.api.get("/v1/domains", headers=headers)).status == 401
    assert (await cells.front.get("/v1/operator/accounts", headers=headers)).status == 401  # fronts drop it
