"""`GET /v1/api-keys`: every key of the account, none of its secrets."""

from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest

from engine.base import clock, ids
from engine.base.secrets import digest
from engine.people.api_keys import rules
from tests.harness.accounts import PEPPER, TestAccount, add_key, make_account, revoke_key
from tests.harness.api import Api


async def listed(api: Api, account: TestAccount, query: str = "") -> dict[str, Any]:
    answer = await api.get(f"/v1/api-keys{query}", account.token)
    assert answer.status == 200, answer
    found: dict[str, Any] = answer.json
    return found


async def test_a_row_is_what_the_interface_says_and_what_limits_the_key(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool, scopes=["messages:read", "account:read"])
    before = datetime.now(UTC) - timedelta(seconds=60)
    found = await listed(api, account)
    (row,) = found["data"]
    key = rules.parse(account.token)
    assert key is not None

    assert set(found) == {"data", "nextCursor"}
    assert ids.parse_id(ids.Kind.API_KEY, row.pop("id")).version == 7
    assert before < clock.parse_iso(row.pop("createdAt")) <= datetime.now(UTC)
    row.pop("lastUsedAt")  # the next test's
    assert row == {
        "name": "tests",
        "scopes": ["account:read", "messages:read"],
        "hint": f"svc_live_{key.key_id[:4]}",
        "revokedAt": None,
        "expiresAt": None,
        "domains": None,
        "streams": None,
        "networks": None,
        "allowedOrigins": None,
        "agent": None,
        "replacedBy": None,
    }


async def test_no_answer_holds_a_secret_its_digest_or_the_whole_key_id(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    key = rules.parse(account.token)
    assert key is not None
    body = (await api.get("/v1/api-keys", account.token)).body

    for secret in (key.secret, key.key_id, digest(PEPPER, key.secret).hex()):
        assert secret.encode() not in body


async def test_a_use_shows_and_a_key_never_used_says_null(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    await add_key(pool, account.id)
    at = clock.now()
    key = rules.parse(account.token)
    assert key is not None
    await pool.execute("UPDATE api_keys SET last_used_at = $2 WHERE key_id = $1", key.key_id, at)
    unused, used = (await listed(api, account))["data"]

    assert (unused["lastUsedAt"], used["lastUsedAt"]) == (None, clock.iso(at))


async def test_a_revoked_key_stays_on_the_list(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    token = await add_key(pool, account.id)
    await revoke_key(pool, account.id, token)
    revoked, live = (await listed(api, account))["data"]

    assert live["revokedAt"] is None
    assert clock.parse_iso(revoked["createdAt"]) <= clock.parse_iso(revoked["revokedAt"]) <= datetime.now(UTC)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("limit", "0"), ("limit", "101"), ("limit", "x"), ("limit", "9" * 30), ("before", "x"), ("before", ""),
        ("before", "msg_01m7xmsqwgebmv6bc4n8ss49bj"), ("before", "key_" + "z" * 26), ("before", "k" * 101),
        ("before", "key_\0"), ("revoked", "false"),
    ],
)  # fmt: skip
async def test_a_bad_parameter_is_refused_by_name(api: Api, pool: asyncpg.Pool, field: str, value: str) -> None:
    account = await make_account(pool)
    answer = await api.get("/v1/api-keys", account.token, params={field: value})

    assert (answer.status, answer.error["type"], answer.error["field"]) == (400, "invalid_request", field)


@pytest.mark.parametrize(("method", "path"), [("POST", "/v1/api-keys"), ("DELETE", "/v1/api-keys/key_x")])
async def test_no_key_makes_or_revokes_a_key(api: Api, pool: asyncpg.Pool, method: str, path: str) -> None:
    account = await make_account(pool)
    answer = await api.request(method, path, token=account.token, body=b"{}")

    assert (answer.status, answer.error["type"]) == (403, "forbidden")
    assert len((await listed(api, account))["data"]) == 1
