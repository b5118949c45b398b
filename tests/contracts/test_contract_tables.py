"""The tables of the contract, as literals: its 162 endpoints, the limits of the plans and the daily warm-up limits."""

from pathlib import Path

import pytest
from msgspec import structs

from api.app import all_operations
from api.http.operation import Operation
from engine.base.plans import CAPS, DAILY_LADDER, Plan

ENDPOINTS = Path(__file__).resolve().parents[1] / "data" / "endpoints.tsv"
ROWS = [line.split("\t") for line in ENDPOINTS.read_text("utf-8").splitlines() if not line.startswith("#")]
OPERATIONS = {(one.method, one.path): one for one in all_operations()}

# One line per limit: Free, Starter, Growth, Scale, Enterprise; "-" is unlimited.
PLAN_CAPS = """
monthly_emails          750     100_000  300_000  1_000_000  1_000_000
sending_domains         1       -        -        -          -
retention_days          30      90       365      730        730
schedule_days           1       3        7        14         21
templates               3       25       100      -          -
streams                 1       3        10       25         -
inbound_addresses       0       10       50       250        2_000
monthly_received        0       50_000   200_000  750_000    -
monthly_verifications   100     5_000    25_000   100_000    100_000
monthly_address_checks  250     10_000   50_000   250_000    250_000
webhooks                1       3        10       25         -
api_keys                5       15       40       150        -
contacts                500     5_000    50_000   250_000    -
lists                   2       10       50       -          -
seats                   1       3        10       -          -
sub_accounts            0       0        5        25         -
analytics_days          7       30       90       90         90
"""


def access_of(operation: Operation) -> str:
    scopes = "|".join(sorted(operation.scopes))
    return operation.access.value + (f":{scopes}" if scopes else "")


def test_the_contract_has_162_endpoints() -> None:
    assert len(ROWS) == 162
    assert len({(method, path) for method, path, *_ in ROWS}) == 162


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]} {row[1]}")
def test_an_endpoint_is_declared_as_in_the_contract(row: list[str]) -> None:
    method, path, tag, access, role, success = row
    operation = OPERATIONS[method, path]
    kind, _, scopes = access.partition(":")
    wanted = kind + (":" + "|".join(sorted(scopes.split("|"))) if scopes else "")

    assert operation.tag == tag
    assert access_of(operation) == wanted
    assert (None if operation.role is None else operation.role.value) == {"-": None, "own": None}.get(role, role)
    assert operation.success == int(success)


@pytest.mark.parametrize("line", PLAN_CAPS.strip().splitlines(), ids=lambda line: line.split()[0])
def test_the_limits_of_the_plans_are_those_of_the_contract(line: str) -> None:
    name, *given = line.split()
    wanted = [None if word == "-" else int(word) for word in given]

    assert [structs.asdict(CAPS[plan])[name] for plan in Plan] == wanted


def test_the_daily_limits_of_new_accounts_are_those_of_the_contract() -> None:
    assert DAILY_LADDER == (50, 200, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000)
