"""The tables of the contract, as literals: endpoints, limits of plans, daily warm-up limits, lists, error types."""

from pathlib import Path

import msgspec
import pytest
from msgspec import structs

from api.http.operation import Operation
from api.routes import all_operations
from engine.base.errors import REGISTRY, ErrorType
from engine.base.plans import CAPS, DAILY_ALLOWANCES, Plan

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

# The contract's table of lists: default and maximum of `limit`, name of the cursor, whether `hasMore` is sent.
LISTS = """
/v1/messages            25   100  before  yes
/v1/suppressions        50   200  before  yes
/v1/inbound/messages    25   100  before  yes
/v1/domains            100   100  before  no
/v1/webhooks            50   100  before  no
/v1/api-keys            50   100  before  no
/v1/inbound/addresses   50   100  before  no
/v1/billing/invoices    50   100  before  no
/v1/billing/history    100   200  after   no
/v1/analytics/delivery  20   100  cursor  no
"""
# Lists that the contract does not describe take 50 rows, at most 100, except these.
OTHER_LIMITS = {
    "/v1/audit/events": (100, 200), "/v1/bounces": (25, 100), "/v1/events": (100, 1000),
    "/v1/lists/{id}/opt-outs": (50, 200), "/v1/streams": (100, 100),
}  # fmt: skip

# The error types that the contract gives a status, with the fields that it names.
ERRORS = """
400  invalid_request
401  unauthorized
401  totp_required          ticket
403  forbidden
403  email_unverified
403  plan_limit_reached     limit used
404  not_found
409  conflict               id
409  terminal_state
403  domain_not_verified    domain
422  invalid_address
422  suppressed             address reason
422  attachment_blocked     filename
422  attachment_infected
429  too_many_streams
429  rate_limited
429  daily_limit_reached    limit sentToday
429  monthly_limit_reached  limit sentThisMonth
429  platform_paused
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
    assert DAILY_ALLOWANCES == (50, 200, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000)


def query_fields(operation: Operation) -> dict[str, structs.FieldInfo]:
    """The query parameters of an operation, by the name in the URL."""
    return {} if operation.query is None else {one.encode_name: one for one in structs.fields(operation.query)}


def limits_of(operation: Operation) -> tuple[int, int]:
    """Default and maximum of `limit`."""
    limit = query_fields(operation)["limit"]
    bounds = msgspec.inspect.type_info(limit.type)
    assert isinstance(bounds, msgspec.inspect.IntType)
    assert (bounds.ge, bounds.le is None) == (1, False)
    assert bounds.le is not None
    return limit.default, bounds.le


@pytest.mark.parametrize("line", LISTS.strip().splitlines(), ids=lambda line: line.split()[0])
def test_a_list_pages_as_in_the_contract(line: str) -> None:
    path, default, most, cursor, has_more = line.split()
    operation = OPERATIONS["GET", path]

    assert limits_of(operation) == (int(default), int(most))
    assert query_fields(operation).keys() & {"before", "after", "cursor"} == {cursor}
    assert ("hasMore" in {one.encode_name for one in structs.fields(operation.reply)}) == (has_more == "yes")


def test_every_other_list_takes_50_rows_and_at_most_100() -> None:
    described = {line.split()[0] for line in LISTS.strip().splitlines()}
    others = {
        path: limits_of(one)
        for (method, path), one in OPERATIONS.items()
        if method == "GET"
        and "limit" in query_fields(one)
        and not path.endswith("/count")  # takes the parameters of its list, and ignores paging
        and path not in described
        and not path.startswith(("/v1/operator/", "/v1/local/", "/v1/compat/"))
    }

    assert {path: limits for path, limits in others.items() if limits != (50, 100)} == OTHER_LIMITS


@pytest.mark.parametrize("line", ERRORS.strip().splitlines(), ids=lambda line: line.split()[1])
def test_an_error_type_has_the_status_and_the_fields_of_the_contract(line: str) -> None:
    status, name, *fields = line.split()
    entry = REGISTRY[ErrorType(name)]

    assert entry.status == int(status)
    assert set(fields) <= {*entry.fields, *dict(entry.former)}
