"""The exceptions of the clients: they can be pickled and copied, and no field of the API overwrites an attribute."""

import asyncio
import copy
import pickle
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from api.sdk.error_classes import RESERVED, error_classes
from engine.base.errors import ErrorType, Refusal, RefusalEntry
from tests.harness.accounts import make_account
from tests.harness.sending import suppress
from tests.sdk.node import run
from tests.sdk.test_requests import KEY, refusal, scripted

NOW = datetime(2026, 11, 23, 9, 30, tzinfo=UTC)
COMPLAINT = """
const error = await client.suppressions.delete("ann@people.test").catch((caught) => caught);
out = { name: error.constructor.name, isOne: error instanceof InvalidStateError && error instanceof ApiError,
  status: error.status, state: error.state, type: error.type, docs: error.docs.split("#")[1] };
"""


def every_error(package: Any) -> list[Exception]:
    """Return an exception of each class."""
    found = [
        kind(
            f"{kind.TYPE} ü", status=409, type=kind.TYPE, fields={"state": "complaint", "limit": 7, "docs": "https://x"},
            request_id="req_1", retry_after=2.5,
        )
        for kind in (package.ApiError, *package.ApiError.CLASSES.values())
    ]  # fmt: skip
    return [
        *found, package.WaybillError("a"), package.ConnectionFailedError("b"), package.RequestTimeoutError("c"),
        package.EventsLostError("d"), package.TailClosedError("bye", "e"),
        package.WebhookVerificationError("malformed_body", "f"),
    ]  # fmt: skip


def test_every_exception_can_be_pickled_and_copied(waybill_client: Any) -> None:
    errors = every_error(waybill_client)
    assert len(errors) == len(ErrorType) + 7
    for error in errors:
        for other in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
            assert (type(other), str(other), vars(other)) == (type(error), str(error), vars(error))


async def test_a_field_of_an_error_leaves_the_http_status_alone(
    waybill_client: Any, api_url: str, pool: asyncpg.Pool
) -> None:
    account = await make_account(pool)
    await suppress(pool, account, "ann@people.test", "complaint")
    async with waybill_client.AsyncWaybill(account.token, base_url=api_url) as client:
        with pytest.raises(waybill_client.InvalidStateError) as caught:
            await client.suppressions.delete("ann@people.test")
    error = caught.value
    assert (error.status, error.state, error.fields["state"]) == (409, "complaint", "complaint")
    assert error.fields["status"] == "complaint"  # the former name


async def test_javascript_has_a_class_for_each_error_type(
    node: str, modules: Path, api_url: str, pool: asyncpg.Pool
) -> None:
    account = await make_account(pool)
    await suppress(pool, account, "ann@people.test", "complaint")
    script = f'const {{ InvalidStateError }} = await import("{(modules / "waybill.mjs").as_uri()}");\n{COMPLAINT}'
    assert await run(node, modules, script, key=account.token, url=api_url) == {
        "name": "InvalidStateError", "isOne": True, "status": 409, "state": "complaint", "type": "invalid_state",
        "docs": "invalid_state",
    }  # fmt: skip
    declared = (modules / "waybill.d.ts").read_text("utf-8")
    assert all(f"export class {one.name} extends ApiError {{" in declared for one in error_classes())


@pytest.mark.parametrize("field", ["status", "type", "message", "docs"])
def test_the_generator_refuses_a_field_that_every_error_has(field: str) -> None:
    assert field in RESERVED
    with pytest.raises(ValueError, match=f"attribute '{field}' already"):
        error_classes({ErrorType.CONFLICT: RefusalEntry(409, (field,))})


def test_an_error_body_carries_former_names_of_its_fields() -> None:
    error = Refusal(ErrorType.TERMINAL_STATE, "It has ended.", state="expired").envelope()["error"]
    assert error == {"type": "terminal_state", "message": "It has ended.", "state": "expired", "status": "expired"}


def test_retry_after_may_be_a_date(waybill_client: Any) -> None:
    from waybill_client import retry  # type: ignore[import-not-found]  # from the wheel

    cases = {
        "7": 7.0, "Mon, 23 Nov 2026 09:30:20 GMT": 20.0, "Monday, 23-Nov-26 09:31:00 GMT": 60.0,
        "Mon Nov 23 09:30:05 2026": 5.0, "Mon, 23 Nov 2026 09:29:00 GMT": 0.0, "soon": None, "9" * 10: None, "-1": None,
    }  # fmt: skip
    assert {text: retry.seconds(text, NOW) for text in cases} == cases
    assert retry.seconds(None, NOW) is None


async def test_a_wait_until_a_past_date_is_over_in_both_clients(waybill_client: Any, node: str, modules: Path) -> None:
    stated = "Retry-After: Mon, 23 Nov 2020 09:30:20 GMT"
    async with scripted(refusal(429, "daily_limit_reached", stated)) as server:
        client = waybill_client.AsyncWaybill(KEY, base_url=server.base_url)
        with pytest.raises(waybill_client.DailyLimitReachedError) as caught:
            await client.messages.list()
        await client.aclose()
        assert caught.value.retry_after == 0
        script = "out = (await client.messages.list().catch((error) => error)).retryAfter;"
        assert await run(node, modules, script, key=KEY, url=server.base_url) == 0


async def test_key_and_address_come_from_the_environment(
    waybill_client: Any, node: str, modules: Path, api_url: str, pool: asyncpg.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = await make_account(pool)
    with pytest.raises(ValueError, match="WAYBILL_API_KEY"):
        waybill_client.Waybill()
    monkeypatch.setenv("WAYBILL_API_KEY", account.token)
    with pytest.raises(ValueError, match="WAYBILL_URL"):
        waybill_client.Waybill()
    monkeypatch.setenv("WAYBILL_URL", api_url)

    def used() -> Any:
        with waybill_client.Waybill() as client:
            return client.account.get()["id"]

    own = await asyncio.to_thread(used)
    script = f'const {{ Waybill }} = await import("{(modules / "waybill.mjs").as_uri()}");\n'
    script += "out = (await new Waybill().account.get()).id;"
    assert await run(node, modules, f"{{{script}}}", key="svc_live_x", url="http://127.0.0.1:1") == own
    with pytest.raises(ValueError, match="set the environment variable"):
        waybill_client.Waybill("", base_url=api_url)  # an empty key is no reason to use another one
