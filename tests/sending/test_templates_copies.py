"""Templates over the API: search, copies, tests to the team, and changes that name the version they were made from."""

import asyncpg
import pytest

from tests.harness.accounts import TestAccount
from tests.harness.api import Api
from tests.harness.people import make_person
from tests.sending.test_templates import change, publish


async def test_search_finds_text_in_id_name_and_subject_in_any_case(api: Api, account: TestAccount) -> None:
    await publish(api, account, id="receipt", name="Beleg 100%", subject="Your order")
    await publish(api, account, id="welcome", name="Welcome", subject="RECEIPT of your mail")
    await publish(api, account, id="other", subject="Nothing", html="receipt")

    async def found(search: str, limit: int = 50) -> list[str]:
        query = f"/v1/templates?search={search}&limit={limit}"
        return [row["id"] for row in (await api.get(query, account.token)).json["data"]]

    assert await found("receipt") == ["welcome", "receipt"]
    assert await found("receipt", limit=1) == ["welcome"]
    assert await found("100%25") == ["receipt"]
    assert await found("_") == []
    assert await found("BELEG") == ["receipt"]


async def test_a_copy_is_version_1_of_a_new_template_with_the_latest_content(api: Api, account: TestAccount) -> None:
    await publish(api, account, id="receipt", name="Receipt")
    latest = (await change(api, account, "receipt", html="<p>{{name}}</p>")).json
    made = await api.post("/v1/templates/receipt/duplicate", account.token, body=b"")
    assert made.status == 201, made
    assert (made.json["id"], made.json["name"], made.json["version"]) == ("receipt-copy", "Receipt (copy)", 1)
    assert all(made.json[part] == latest[part] for part in ("subject", "html", "text", "variables"))

    named = await api.post("/v1/templates/receipt/duplicate", account.token, {"id": "bill", "name": "Bill"})
    assert (named.json["id"], named.json["name"]) == ("bill", "Bill")
    taken = await api.post("/v1/templates/receipt/duplicate", account.token, {"id": "bill"})
    assert (taken.status, taken.error["type"]) == (409, "conflict")
    assert (await api.post("/v1/templates/unknown/duplicate", account.token, {})).status == 404


async def test_the_name_of_a_copy_fits_the_limit(api: Api, account: TestAccount) -> None:
    await publish(api, account, id="long", name="n" * 120)
    made = (await api.post("/v1/templates/long/duplicate", account.token, {})).json
    assert made["name"] == "n" * 113 + " (copy)"


async def test_a_change_made_from_an_older_version_is_a_conflict(api: Api, account: TestAccount) -> None:
    await publish(api, account, id="receipt")
    assert (await change(api, account, "receipt", text="Two", ifVersion=1)).json["version"] == 2
    late = await change(api, account, "receipt", text="Late", ifVersion=1)
    assert (late.status, late.error["type"], late.error["version"]) == (409, "conflict", 2)
    assert (await api.get("/v1/templates/receipt", account.token)).json["text"] == "Two"
    assert (await change(api, account, "receipt", text="Three", ifVersion=2)).json["version"] == 3


async def test_a_test_goes_to_the_team_only_and_counts_as_a_send(
    api: Api, pool: asyncpg.Pool, account: TestAccount
) -> None:
    ann = await make_person(pool, account.id)
    await publish(api, account, id="receipt", html="<p>{{name}}</p>")
    body = {"from": account.sender, "to": [ann.email], "variables": {"name": "<Ann>"}}
    answer = await api.post("/v1/templates/receipt/test", account.token, body)
    assert answer.status == 202, answer
    [row] = answer.json["data"]
    assert (row["to"], row["status"]) == (ann.email, "queued")
    message = (await api.get(f"/v1/messages/{row['id']}", account.token)).json
    assert (message["subject"], message["template"], message["templateVersion"]) == ("[Test] Hi <Ann>", "receipt", 1)
    assert (await api.get("/v1/me", account.token)).json["sending"]["sentToday"] == 1

    stranger = await api.post("/v1/templates/receipt/test", account.token, body | {"to": [ann.email, "eve@x.test"]})
    assert (stranger.status, stranger.error["field"]) == (400, "to")
    assert (await api.post("/v1/templates/receipt/test", account.token, body | {"to": [ann.email] * 6})).status == 400


@pytest.mark.parametrize(
    ("changes", "status", "kind"),
    [
        ({"variables": {}}, 422, "template_error"),
        ({"version": 9}, 422, "template_error"),
        ({"from": "a@elsewhere.test"}, 403, "domain_not_verified"),
        ({"stream": "unknown"}, 400, "invalid_request"),
        ({"to": ["nobody"]}, 422, "invalid_address"),
    ],
)
async def test_a_test_is_refused_as_a_send_is(
    api: Api, pool: asyncpg.Pool, account: TestAccount, changes: dict[str, object], status: int, kind: str
) -> None:
    ann = await make_person(pool, account.id)
    await publish(api, account, id="receipt")
    body = {"from": account.sender, "to": [ann.email], "variables": {"name": "Ann"}} | changes
    answer = await api.post("/v1/templates/receipt/test", account.token, body)
    assert (answer.status, answer.error["type"]) == (status, kind), answer
