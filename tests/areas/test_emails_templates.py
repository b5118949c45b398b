"""`template`, `templateVersion` and `variables` in a send."""

from typing import Any

import asyncpg
import pytest

from tests.harness.accounts import TestAccount, make_account
from tests.harness.api import Answer, Api

WELCOME = {
    "id": "welcome",
    "subject": "Welcome, {{name}}",
    "html": "<p>Hello {{name}}{{#code}}, your code is {{code}}{{/code}}</p>",
    "text": "Hello {{name}}",
    "variables": [{"name": "name", "required": True}, {"name": "code"}],
}


@pytest.fixture
async def account(pool: asyncpg.Pool, api: Api) -> TestAccount:
    """An account with a template."""
    made = await make_account(pool)
    answer = await api.post("/v1/templates", made.token, WELCOME)
    assert answer.status == 201, answer
    return made


async def send(api: Api, account: TestAccount, **fields: object) -> Answer:
    usual: dict[str, object] = {"text": None, "subject": None, "template": "welcome", "variables": {"name": "Ann"}}
    return await api.post("/v1/emails", account.token, account.email(**(usual | fields)))


async def message(api: Api, account: TestAccount, answer: Answer) -> Any:
    assert answer.status == 202, answer
    return (await api.get(f"/v1/messages/{answer.json['id']}", account.token)).json


async def sent_today(api: Api, account: TestAccount) -> int:
    return int((await api.get("/v1/me", account.token)).json["sending"]["sentToday"])


async def test_a_message_says_what_its_template_says(api: Api, account: TestAccount) -> None:
    found = await message(api, account, await send(api, account, variables={"name": "Ann & Bob", "code": "<7>"}))

    assert found["subject"] == "Welcome, Ann & Bob"
    assert found["text"].strip() == "Hello Ann & Bob"
    assert found["html"].strip() == "<p>Hello Ann &amp; Bob, your code is &lt;7&gt;</p>"
    assert (found["template"], found["templateVersion"]) == ("welcome", 1)


async def test_the_latest_version_is_used_and_named_unless_another_is_asked_for(api: Api, account: TestAccount) -> None:
    await api.request(
        "PATCH", "/v1/templates/welcome", token=account.token, body=b'{"text":"Good day {{name}}"}',
        headers={"Content-Type": "application/json"},
    )  # fmt: skip
    for _ in range(40):  # until every process knows
        latest = await message(api, account, await send(api, account))
        if latest["templateVersion"] == 2:
            break
    first = await message(api, account, await send(api, account, templateVersion=1))

    assert (latest["templateVersion"], latest["text"].strip()) == (2, "Good day Ann")
    assert (first["templateVersion"], first["text"].strip()) == (1, "Hello Ann")


async def test_a_missing_required_variable_refuses_and_sends_nothing(api: Api, account: TestAccount) -> None:
    for variables in ({}, {"code": "7"}, None):
        answer = await send(api, account, variables=variables)
        assert (answer.status, answer.error["type"]) == (422, "template_error")
        assert (answer.error["missing"], answer.error["template"], answer.error["version"]) == (["name"], "welcome", 1)
    assert await sent_today(api, account) == 0


async def test_variables_that_the_template_does_not_know_are_ignored(api: Api, account: TestAccount) -> None:
    found = await message(api, account, await send(api, account, variables={"name": "Ann", "colour": "red"}))

    assert "red" not in found["html"] + found["text"] + found["subject"]


@pytest.mark.parametrize(
    ("fields", "version"),
    [
        ({"template": "nobody-made-this"}, None),
        ({"templateVersion": 2}, 2),
        ({"templateVersion": 3_000_000_000}, 3_000_000_000),
        ({"templateVersion": 2**63 - 1}, 2**63 - 1),
    ],
)
async def test_an_unknown_template_or_version_is_a_template_error(
    api: Api, account: TestAccount, fields: dict[str, object], version: int | None
) -> None:
    answer = await send(api, account, **fields)

    assert (answer.status, answer.error["type"]) == (422, "template_error")
    assert (answer.error["template"], answer.error["version"]) == (fields.get("template", "welcome"), version)
    assert await sent_today(api, account) == 0


async def test_another_accounts_template_is_unknown(api: Api, account: TestAccount, pool: asyncpg.Pool) -> None:
    stranger = await make_account(pool)

    assert (await send(api, stranger)).error["type"] == "template_error"


async def test_a_subject_beside_the_template_stands_in_its_place(api: Api, account: TestAccount) -> None:
    assert (await message(api, account, await send(api, account, subject="Mine")))["subject"] == "Mine"
    assert (await message(api, account, await send(api, account, subject="")))["subject"] == ""


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"html": "<p>x</p>"}, "html"),
        ({"text": "x"}, "text"),
        ({"text": ""}, "text"),
        ({"template": None, "text": "x"}, "variables"),
        ({"template": None, "text": "x", "variables": None, "templateVersion": 1}, "templateVersion"),
        ({"subject": "a\nb"}, "subject"),
        ({"variables": {"name": "\0"}}, "variables.name"),
    ],
)
async def test_fields_that_contradict_the_template_are_refused(
    api: Api, account: TestAccount, fields: dict[str, object], field: str
) -> None:
    answer = await send(api, account, **fields)

    assert (answer.status, answer.error["type"], answer.error["field"]) == (400, "invalid_request", field)


@pytest.mark.parametrize("breaker", ["\r", "\n", "\r\nBcc: eve@evil.test"])
async def test_no_variable_adds_a_header(api: Api, account: TestAccount, breaker: str) -> None:
    answer = await send(api, account, variables={"name": f"Ann{breaker}"})

    assert (answer.status, answer.error["type"], answer.error["field"]) == (400, "invalid_request", "variables.name")
    sent = await send(api, account, variables={"name": f"Ann{breaker}"}, subject="Fine")
    assert (await api.get(f"/v1/messages/{sent.json['id']}", account.token)).json["subject"] == "Fine"


async def test_a_replay_is_not_broken_by_a_later_version_or_a_deletion(api: Api, account: TestAccount) -> None:
    first = await send(api, account, idempotencyKey="k")
    await api.request(
        "PATCH", "/v1/templates/welcome", token=account.token, body=b'{"subject":"Good day"}',
        headers={"Content-Type": "application/json"},
    )  # fmt: skip
    again = await send(api, account, idempotencyKey="k")
    await api.request("DELETE", "/v1/templates/welcome", token=account.token)
    for _ in range(40):  # until every process knows
        if (await send(api, account)).status == 422:
            break
    and_again = await send(api, account, idempotencyKey="k")

    for answer in (again, and_again):
        assert (answer.status, answer.json) == (200, {"id": first.json["id"], "status": "duplicate"})


async def test_a_template_made_a_moment_ago_can_be_used(api: Api, account: TestAccount) -> None:
    assert (await send(api, account, template="brand-new")).status == 422
    await api.post("/v1/templates", account.token, {"id": "brand-new", "subject": "New", "text": "Hi"})

    assert (await send(api, account, template="brand-new", variables=None)).status == 202


async def test_a_template_works_in_a_batch_and_for_later(api: Api, account: TestAccount) -> None:
    item = account.email(text=None, subject=None, template="welcome", variables={"name": "Ann"})
    answer = await api.post(
        "/v1/emails/batch", account.token, {"messages": [item, item | {"scheduledAt": "2999-01-01T00:00:00Z"}]}
    )

    assert [one["status"] for one in answer.json["data"]] == ["queued", "refused"]
    assert answer.json["data"][1]["error"]["field"] == "scheduledAt"
