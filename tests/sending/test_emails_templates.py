"""`template`, `templateVersion` and `variables` in a send."""

from typing import Any

import asyncpg
import pytest

from tests.harness.accounts import TestAccount, make_account
from tests.harness.api import Answer, Api
from tests.harness.emails import sent_today

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


RECEIPT = {
    "id": "receipt",
    "subject": "{{order.id}} for {{name}}",
    "html": "<ul>{{#items}}<li>{{name}}: {{price}}</li>{{/items}}</ul>{{^items}}nothing{{/items}}",
    "variables": [{"name": "order", "required": True}, {"name": "name", "default": "you"}, {"name": "items"}],
}
DATA = {"order": {"id": 7}, "items": [{"name": "A & B", "price": 1.5}, {"name": "C", "price": 2}]}


async def test_nested_data_repeats_sections_in_a_send_a_dry_run_and_a_preview(api: Api, account: TestAccount) -> None:
    assert (await api.post("/v1/templates", account.token, RECEIPT)).status == 201
    fields: dict[str, Any] = {"template": "receipt", "variables": None, "data": DATA}
    expected = "<ul><li>A &amp; B: 1.5</li><li>C: 2</li></ul>"

    found = await message(api, account, await send(api, account, **fields))
    foreseen = await send(api, account, **fields, dryRun=True)
    preview = await api.post("/v1/templates/receipt/preview", account.token, {"data": DATA})

    assert (found["subject"], found["html"].strip()) == ("7 for you", expected)
    assert foreseen.json["message"]["html"].strip() == expected
    assert (preview.json["subject"], preview.json["html"]) == ("7 for you", expected)
    assert [one["code"] for one in preview.json["warnings"]] == ["no_text"]


@pytest.mark.parametrize(
    ("fields", "status", "named"),
    [
        ({"data": {"name": "x"}}, 400, {"field": "data.name"}),
        ({"data": {"l": [0] * 1001}}, 400, {"field": "data.l"}),
        ({"data": {"l": "x" * 70_000}}, 400, {"field": "data"}),
        ({"data": {"l": [["\0"]]}}, 400, {"field": "data.l[0][0]"}),
        ({"data": [1]}, 400, {"field": "data"}),
        ({"data": {"code": [1]}}, 422, {"template": "welcome", "version": 1}),
        ({"variables": None, "data": {"name": "a\nb"}}, 422, {"template": "welcome"}),
        ({"variables": None, "data": {"name": None}}, 422, {"missing": ["name"]}),
        ({"template": None, "text": "x", "variables": None, "data": {"a": 1}}, 400, {"field": "data"}),
    ],
)
async def test_data_that_can_not_be_rendered_is_refused_by_name(
    api: Api, account: TestAccount, fields: dict[str, Any], status: int, named: dict[str, Any]
) -> None:
    answer = await send(api, account, **fields)

    assert answer.status == status, answer
    assert {name: answer.json["error"][name] for name in named} == named
    assert await sent_today(api, account) == 0


async def test_other_data_under_a_used_key_is_noticed_and_other_order_is_not(api: Api, account: TestAccount) -> None:
    again = {"idempotencyKey": "k"}
    assert (await send(api, account, **again, data={"a": 1, "b": [2]})).status == 202

    same = await send(api, account, **again, data={"b": [2], "a": 1})
    other = await send(api, account, **again, data={"b": [3], "a": 1})

    assert (same.json["status"], same.json.get("bodyDiffers")) == ("duplicate", None)
    assert (other.json["status"], other.json.get("bodyDiffers")) == ("duplicate", True)
