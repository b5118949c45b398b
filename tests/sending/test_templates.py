"""Templates over the API: publishing, versions, previews, and what is refused."""

import asyncio
from typing import Any

import asyncpg
import orjson
import pytest

from engine.base import clock
from engine.store.database_errors import DatabaseError
from tests.harness.account_log import logged
from tests.harness.accounts import TestAccount, make_account
from tests.harness.actors import key_of
from tests.harness.api import Answer, Api, refuses

JSON = {"Content-Type": "application/json"}
HELLO = {"subject": "Hi {{name}}", "text": "Hello {{name}}!", "variables": [{"name": "name", "required": True}]}


async def publish(api: Api, account: TestAccount, **fields: object) -> dict[str, Any]:
    """A new template; its reply."""
    answer = await api.post("/v1/templates", account.token, HELLO | fields)
    assert answer.status == 201, answer
    found: dict[str, Any] = answer.json
    return found


async def change(api: Api, account: TestAccount, slug: str, **fields: object) -> Answer:
    body = orjson.dumps(fields)
    return await api.request("PATCH", f"/v1/templates/{slug}", token=account.token, body=body, headers=JSON)


async def delete(api: Api, account: TestAccount, slug: str) -> Answer:
    return await api.request("DELETE", f"/v1/templates/{slug}", token=account.token)


# making ----------------------------------------------------------------------------------------


async def test_a_new_template_is_published_as_version_1(api: Api, account: TestAccount) -> None:
    before = clock.now()
    found = await publish(api, account, id="welcome", name="Welcome", html="<p>Hello {{name}}</p>")

    assert before <= clock.parse_iso(found["createdAt"]) <= clock.now()
    assert found == {
        "id": "welcome",
        "name": "Welcome",
        "version": 1,
        "subject": "Hi {{name}}",
        "html": "<p>Hello {{name}}</p>",
        "text": "Hello {{name}}!",
        "variables": [{"name": "name", "required": True, "default": None, "description": None}],
        "layout": None,
        "layoutVersion": None,
        "blocks": None,
        "warnings": [],
        "createdAt": found["createdAt"],
        "updatedAt": found["createdAt"],
    }
    assert (await api.get("/v1/templates/welcome", account.token)).json == found


async def test_content_comes_back_to_the_byte(api: Api, account: TestAccount) -> None:
    html = "<p>\r\n\t é e\u0301 \u2028 😀 {{name}}  \n\n</p> \ufeff"
    text = "\n  {{name}}\r\ntrailing   \n"
    found = await publish(api, account, html=html, text=text, subject="Ünïcode {{name}} ")
    read = (await api.get(f"/v1/templates/{found['id']}", account.token)).json
    (version,) = (await api.get(f"/v1/templates/{found['id']}/versions", account.token)).json["data"]

    for one in (found, read, version):
        assert (one["html"], one["text"], one["subject"]) == (html, text, "Ünïcode {{name}} ")


@pytest.mark.parametrize(
    ("fields", "start"),
    [
        ({"name": "Order confirmed!"}, "order-confirmed"),
        ({"name": "Größe — Übersicht №5"}, "grosse-ubersicht-no5"),
        ({"name": "注文"}, "template-"),
        ({"name": "Preview"}, "preview-"),  # a path of the API
        ({}, "template-"),
        ({"name": ""}, "template-"),
        ({"name": "x" * 120}, "x" * 64),
    ],
)
async def test_a_template_without_an_id_gets_one_from_its_name(
    api: Api, account: TestAccount, fields: dict[str, str], start: str
) -> None:
    found = await publish(api, account, **fields)

    assert found["id"].startswith(start)
    assert (await api.get(f"/v1/templates/{found['id']}", account.token)).status == 200


async def test_two_templates_of_one_name_get_two_ids(api: Api, account: TestAccount) -> None:
    found = [await publish(api, account, name="Receipt") for _ in range(3)]

    assert found[0]["id"] == "receipt"
    assert all(one["id"].startswith("receipt-") for one in found[1:])
    assert len({one["id"] for one in found}) == 3


async def test_a_made_up_id_is_never_one_used_before(api: Api, account: TestAccount) -> None:
    await publish(api, account, name="Receipt")
    await delete(api, account, "receipt")
    found = await publish(api, account, name="Receipt")

    assert found["id"].startswith("receipt-")
    assert found["version"] == 1


async def test_an_id_in_use_is_a_conflict_that_names_it(api: Api, account: TestAccount) -> None:
    await publish(api, account, id="welcome")
    answer = await api.post("/v1/templates", account.token, HELLO | {"id": "welcome"})

    assert (answer.status, answer.error["type"], answer.error["id"]) == (409, "conflict", "welcome")


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"id": "Welcome"}, "id"),
        ({"id": "a--b"}, "id"),
        ({"id": ""}, "id"),
        ({"id": "a" * 65}, "id"),
        ({"id": "welcome\n"}, "id"),
        ({"id": "preview"}, "id"),
        ({"name": "a\0b"}, "name"),
        ({"name": "n" * 121}, "name"),
        ({"subject": "a\nb"}, "subject"),
        ({"subject": "a\rb"}, "subject"),
        ({"subject": "a\0b"}, "subject"),
        ({"subject": "s" * 999}, "subject"),
        ({"html": "a\0b"}, "html"),
        ({"text": "a\0b"}, "text"),
        ({"text": "x" * 1_000_001}, "text"),
        ({"html": "x" * 1_000_001}, "html"),
        ({"variables": [{"name": "a b"}]}, "variables[0].name"),
        ({"variables": [{"name": ""}]}, "variables[0].name"),
        ({"variables": [{"name": "a" * 65}]}, "variables[0].name"),
        ({"variables": [{"name": "a"}, {"name": "b"}, {"name": "a"}]}, "variables[2].name"),
        ({"variables": [{"name": "a", "default": "x\0"}]}, "variables[0].default"),
        ({"variables": [{"name": "a", "default": "x" * 5001}]}, "variables[0].default"),
        ({"variables": [{"name": "a", "description": "\0"}]}, "variables[0].description"),
        ({"variables": [{"name": "a", "description": "x" * 501}]}, "variables[0].description"),
        ({"variables": [{"name": "a", "type": "string"}]}, "variables[0].type"),
        ({"variables": [{"required": True}]}, "variables[0].name"),
        ({"variables": [{"name": "a", "required": "yes"}]}, "variables[0].required"),
        ({"variables": [{"name": f"v{n}"} for n in range(201)]}, "variables"),
        ({"variables": {"name": "a"}}, "variables"),
        ({"slug": "a"}, "slug"),
    ],
)
async def test_a_bad_field_is_named(api: Api, account: TestAccount, fields: dict[str, object], field: str) -> None:
    answer = await api.post("/v1/templates", account.token, HELLO | fields)

    assert refuses(answer, field), answer
    assert (await api.get("/v1/templates", account.token)).json["data"] == []


async def test_a_lone_surrogate_is_refused(api: Api, account: TestAccount) -> None:
    answer = await api.post("/v1/templates", account.token, body=b'{"text": "a \\ud800 b"}')

    assert refuses(answer, "body")


async def test_a_fault_in_the_source_is_named_with_line_and_column(api: Api, account: TestAccount) -> None:
    answer = await api.post("/v1/templates", account.token, {"text": "fine", "html": "<p>\n  {{#open}}</p>"})

    assert refuses(answer, "html")
    assert (answer.error["line"], answer.error["column"]) == (2, 3)
    assert "{{/open}}" in answer.error["message"]


async def test_what_is_odd_is_a_warning(api: Api, account: TestAccount) -> None:
    found = await publish(
        api,
        account,
        subject=None,
        text=None,
        html="{{known}} {{forgotten}} {{#given}}{{{known}}}{{/given}}",
        variables=[
            {"name": "known"},
            {"name": "idle"},
            {"name": "given", "required": True, "default": "x"},
        ],
    )

    assert [(one["code"], one.get("variable")) for one in found["warnings"]] == [
        ("undeclared_variable", "forgotten"),
        ("unused_variable", "idle"),
        ("required_with_default", "given"),
        ("no_subject", None),
        ("no_text", None),
        ("raw_value", "known"),
    ]
    assert all(one["message"] for one in found["warnings"])
    read = await api.get(f"/v1/templates/{found['id']}", account.token)
    assert read.json["warnings"] == found["warnings"]


@pytest.mark.parametrize("fields", [{}, {"subject": "Hi {{name}}"}, {"html": "", "text": ""}, {"html": "{{! soon }}"}])
async def test_every_field_is_optional_and_what_says_nothing_is_not_sent_yet(
    api: Api, account: TestAccount, fields: dict[str, object]
) -> None:
    made = await api.post("/v1/templates", account.token, fields | {"id": "welcome"})
    assert made.status == 201
    assert "no_content" in [one["code"] for one in made.json["warnings"]]
    request = account.email(text=None, template="welcome", variables={"name": "Ann"})
    preview = await api.post("/v1/templates/welcome/preview", account.token, {"variables": {"name": "Ann"}})
    sent = await api.post("/v1/emails", account.token, request)

    assert (sent.status, sent.error["type"], sent.error["template"]) == (422, "template_error", "welcome")
    assert (preview.status, preview.json) == (sent.status, sent.json)
    assert (await change(api, account, "welcome", text="Hello")).json["version"] == 2
    assert (await api.post("/v1/emails", account.token, request)).status == 202


async def test_null_is_a_field_left_out(api: Api, account: TestAccount) -> None:
    found = await publish(api, account, id=None, name=None, html=None, variables=None)
    nulls = [{"name": "a", "required": None, "default": None, "description": None}]
    other = await publish(api, account, variables=nulls)

    assert (found["name"], found["html"], found["variables"]) == (None, None, [])
    assert other["variables"] == [{"name": "a", "required": False, "default": None, "description": None}]


async def test_the_plans_number_of_templates_is_the_limit(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool, plan="free")
    made = [await publish(api, account) for _ in range(3)]
    answer = await api.post("/v1/templates", account.token, HELLO)

    assert answer.status == 403
    assert answer.error | {"message": "", "docs": ""} == {
        "type": "plan_limit_reached",
        "message": "",
        "docs": "",
        "resource": "templates",
        "limit": 3,
        "used": 3,
    }
    await delete(api, account, made[0]["id"])
    await publish(api, account)


async def test_a_plan_without_a_limit_has_none(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool, plan="scale")
    made = [await publish(api, account) for _ in range(101)]

    assert len({one["id"] for one in made}) == 101


async def test_parallel_requests_never_pass_the_limit(api: Api, pool: asyncpg.Pool) -> None:
    for _ in range(20):
        account = await make_account(pool, plan="free")
        answers = await asyncio.gather(*(api.post("/v1/templates", account.token, HELLO) for _ in range(8)))

        assert sorted(answer.status for answer in answers) == [201] * 3 + [403] * 5
        assert all(answer.error["used"] == 3 for answer in answers if answer.status == 403)
        assert len((await api.get("/v1/templates", account.token)).json["data"]) == 3


async def test_of_parallel_requests_for_one_id_one_wins(api: Api, account: TestAccount) -> None:
    for turn in range(20):
        body = HELLO | {"id": f"one-{turn}"}
        answers = await asyncio.gather(*(api.post("/v1/templates", account.token, body) for _ in range(4)))

        assert sorted(answer.status for answer in answers) == [201, 409, 409, 409]


# changing --------------------------------------------------------------------------------------


async def test_changed_content_is_the_next_version(api: Api, account: TestAccount) -> None:
    first = await publish(api, account, id="welcome", html="<p>One</p>")
    answer = await change(api, account, "welcome", html="<p>Two</p>")

    assert answer.status == 200
    assert answer.json == first | {
        "version": 2,
        "html": "<p>Two</p>",
        "updatedAt": answer.json["updatedAt"],
    }
    assert answer.json["updatedAt"] >= first["updatedAt"]
    assert (await api.get("/v1/templates/welcome", account.token)).json == answer.json


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"html": "", "text": "Hello"},
        {"subject": None, "html": "<p>Hello {{name}}</p>\r\n", "variables": []},
        {
            "variables": [
                {"name": "name"},
                {"name": "b", "default": "", "description": ""},
                {"name": "a", "required": None},
            ]
        },
    ],
)
async def test_equal_content_is_no_new_version(
    api: Api, pool: asyncpg.Pool, account: TestAccount, fields: dict[str, Any]
) -> None:
    made = await publish(api, account, id="welcome", name="Welcome", **fields)
    sent = HELLO | {"name": "Welcome"} | fields
    read = {name: made[name] for name in ("name", "subject", "html", "text", "variables", "layout")}

    for body in (sent, read, {"subject": made["subject"]}, {}):
        answer = await change(api, account, "welcome", **body)
        assert (answer.status, answer.json) == (200, made), body
    assert [kind for kind, _ in await logged(pool, account.id)] == ["template.created"]


async def test_earlier_versions_stay_byte_identical(api: Api, account: TestAccount) -> None:
    published = [await publish(api, account, id="welcome")]
    for number in range(2, 6):
        answer = await change(api, account, "welcome", text=f"{number} {{{{name}}}}\r\n ", subject=f"No {number}")
        published.append(answer.json)
    versions = (await api.get("/v1/templates/welcome/versions", account.token)).json

    assert versions["nextCursor"] is None
    assert [one["version"] for one in versions["data"]] == [5, 4, 3, 2, 1]
    for one, was in zip(reversed(versions["data"]), published, strict=True):
        assert one == {
            **{name: was[name] for name in ("version", "subject", "html", "text", "variables")},
            "layout": None,
            "layoutVersion": None,
            "blocks": None,
            "createdAt": was["updatedAt"],
        }


async def test_the_database_refuses_to_change_a_version(api: Api, pool: asyncpg.Pool, account: TestAccount) -> None:
    await publish(api, account, id="welcome")

    with pytest.raises(DatabaseError, match="does not change"):
        await pool.execute("UPDATE template_versions SET text = 'x' WHERE account_id = $1", account.id)


@pytest.mark.parametrize("fields", [{}, {"name": "Welcome"}, {"text": HELLO["text"]}, {"html": None}])
async def test_a_change_that_changes_nothing_publishes_nothing(
    api: Api, pool: asyncpg.Pool, account: TestAccount, fields: dict[str, object]
) -> None:
    first = await publish(api, account, id="welcome", name="Welcome")
    answer = await change(api, account, "welcome", **fields)

    assert (answer.status, answer.json) == (200, first)
    assert [kind for kind, _ in await logged(pool, account.id)] == ["template.created"]


async def test_a_new_name_is_no_new_version(api: Api, pool: asyncpg.Pool, account: TestAccount) -> None:
    first = await publish(api, account, id="welcome", name="Welcome")
    renamed = (await change(api, account, "welcome", name="Hello")).json

    assert renamed == first | {"name": "Hello", "updatedAt": renamed["updatedAt"]}
    assert (await change(api, account, "welcome", name=None)).json["name"] is None


async def test_a_field_left_out_stays_and_null_clears_it(api: Api, account: TestAccount) -> None:
    await publish(api, account, id="welcome", html="<p>{{name}}</p>")
    found = (await change(api, account, "welcome", subject=None, variables=None)).json

    assert (found["subject"], found["variables"]) == (None, [])
    assert (found["html"], found["text"]) == ("<p>{{name}}</p>", HELLO["text"])
    emptied = (await change(api, account, "welcome", html=None, text=None)).json
    assert (emptied["version"], emptied["html"], emptied["text"]) == (3, None, None)


async def test_a_change_is_checked_as_a_new_template_is(api: Api, account: TestAccount) -> None:
    first = await publish(api, account, id="welcome")

    assert refuses(await change(api, account, "welcome", html="{{"), "html")
    assert refuses(await change(api, account, "welcome", name="\0"), "name")
    assert refuses(await change(api, account, "welcome", id="other"), "id")
    assert refuses(await change(api, account, "welcome", variables=[{"name": "a"}, {"name": "a"}]), "variables[1].name")
    assert (await api.get("/v1/templates/welcome", account.token)).json == first


async def test_parallel_changes_all_count(api: Api, account: TestAccount) -> None:
    """Each changes another field: none may undo another's, and no version is named twice."""
    await publish(api, account, id="welcome", html="<p></p>")
    for turn in range(20):
        answers = await asyncio.gather(
            change(api, account, "welcome", subject=f"S{turn}"),
            change(api, account, "welcome", html=f"H{turn}"),
            change(api, account, "welcome", text=f"T{turn}"),
            change(api, account, "welcome", name=f"N{turn}"),
        )
        assert [answer.status for answer in answers] == [200] * 4
        found = (await api.get("/v1/templates/welcome", account.token)).json
        assert (found["subject"], found["html"], found["text"], found["name"]) == (
            f"S{turn}", f"H{turn}", f"T{turn}", f"N{turn}",
        )  # fmt: skip
        assert found["version"] == 1 + 3 * (turn + 1)


# deleting --------------------------------------------------------------------------------------


async def test_a_deleted_template_is_gone_and_its_versions_stay_stored(
    api: Api, pool: asyncpg.Pool, account: TestAccount
) -> None:
    await publish(api, account, id="welcome")
    await change(api, account, "welcome", text="Two")
    answer = await delete(api, account, "welcome")

    assert (answer.status, answer.body) == (204, b"")
    for gone in (
        await api.get("/v1/templates/welcome", account.token),
        await api.get("/v1/templates/welcome/versions", account.token),
        await api.post("/v1/templates/welcome/preview", account.token, {}),
        await api.post("/v1/templates/welcome/preview", account.token, {"version": 1}),
        await change(api, account, "welcome", text="Three"),
        await delete(api, account, "welcome"),
    ):
        assert (gone.status, gone.error["type"]) == (404, "not_found")
    kept = await pool.fetch("SELECT text FROM template_versions WHERE account_id = $1 ORDER BY version", account.id)
    assert [row["text"] for row in kept] == [HELLO["text"], "Two"]


async def test_a_slug_used_again_counts_on(api: Api, account: TestAccount) -> None:
    await publish(api, account, id="welcome", name="Old")
    await change(api, account, "welcome", text="Two")
    await delete(api, account, "welcome")
    found = await publish(api, account, id="welcome", text="Three")

    assert (found["version"], found["name"]) == (3, None)
    versions = (await api.get("/v1/templates/welcome/versions", account.token)).json["data"]
    assert [one["text"] for one in versions] == ["Three", "Two", HELLO["text"]]


async def test_each_change_is_in_the_account_log(api: Api, pool: asyncpg.Pool, account: TestAccount) -> None:
    await publish(api, account, id="welcome", name="Welcome")
    await change(api, account, "welcome", text="Two")
    await change(api, account, "welcome", name="Hello")
    await change(api, account, "welcome", text="Three", name=None)
    await delete(api, account, "welcome")

    told = {"id": "welcome", "actor": await key_of(pool, account)}
    assert await logged(pool, account.id) == [
        ("template.created", told | {"name": "Welcome", "version": 1}),
        ("template.published", told | {"version": 2}),
        ("template.renamed", told | {"name": "Hello"}),
        ("template.published", told | {"version": 3, "name": None}),
        ("template.deleted", told | {"version": 3}),
    ]
