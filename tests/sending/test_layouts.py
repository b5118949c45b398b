"""Layouts over the API: frames of templates, their versions, and what a change of one does to the templates."""

import asyncio
from typing import Any

import asyncpg
import orjson
import pytest

from engine.sending.templates import types
from engine.store.database_errors import DatabaseError
from tests.harness.account_log import logged
from tests.harness.accounts import TestAccount, make_account
from tests.harness.actors import key_of
from tests.harness.api import Answer, Api, refuses
from tests.harness.people import make_person
from tests.sending.test_templates import change, publish

JSON = {"Content-Type": "application/json"}
BRAND = {"id": "brand", "html": "<main>{{{content}}}</main><p>{{company}}</p>", "text": "{{{content}}}\n-- {{company}}"}
FIELDS = {"id": "hi", "html": "<b>{{name}}</b>", "text": "Hi {{name}}", "layout": "brand"}


async def make_layout(api: Api, account: TestAccount, **fields: object) -> dict[str, Any]:
    answer = await api.post("/v1/layouts", account.token, BRAND | fields)
    assert answer.status == 201, answer
    found: dict[str, Any] = answer.json
    return found


async def patch(api: Api, account: TestAccount, slug: str = "brand", **fields: object) -> Answer:
    body = orjson.dumps(fields)
    return await api.request("PATCH", f"/v1/layouts/{slug}", token=account.token, body=body, headers=JSON)


async def shown(api: Api, account: TestAccount, slug: str = "hi", **fields: object) -> tuple[str, str]:
    """HTML and text of a preview."""
    body = {"variables": {"name": "<Ann>", "company": "A & B"}} | fields
    answer = await api.post(f"/v1/templates/{slug}/preview", account.token, body)
    assert answer.status == 200, answer
    return answer.json["html"], answer.json["text"]


# the layout -------------------------------------------------------------------------------------


async def test_a_layout_is_made_read_listed_and_deleted(api: Api, account: TestAccount) -> None:
    made = await make_layout(api, account, name="Brand", variables=[{"name": "company", "default": "Shop"}])
    assert made == {
        "id": "brand",
        "name": "Brand",
        "version": 1,
        "html": BRAND["html"],
        "text": BRAND["text"],
        "variables": [{"name": "company", "required": False, "default": "Shop", "description": None}],
        "templates": [],
        "warnings": [],
        "createdAt": made["createdAt"],
        "updatedAt": made["createdAt"],
    }
    assert (await api.get("/v1/layouts/brand", account.token)).json == made
    await publish(api, account, **FIELDS)
    assert (await api.get("/v1/layouts/brand", account.token)).json["templates"] == ["hi"]
    await make_layout(api, account, id="second")
    listed = (await api.get("/v1/layouts?limit=1", account.token)).json
    assert ([row["id"] for row in listed["data"]], listed["nextCursor"]) == (["second"], "second")
    rest = (await api.get("/v1/layouts?before=second", account.token)).json
    assert [(row["id"], row["templates"], row["version"]) for row in rest["data"]] == [("brand", 1, 1)]
    assert (await api.request("DELETE", "/v1/layouts/second", token=account.token)).status == 204
    assert (await api.get("/v1/layouts/second", account.token)).status == 404


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"html": "<p>no place</p>"}, "html"),
        ({"html": "{{{content}}}{{{content}}}"}, "html"),
        ({"html": "{{content}}"}, "html"),
        ({"html": "{{#a}}{{{content}}}{{/a}}"}, "html"),
        ({"html": "{{{content}}}{{#content}}x{{/content}}"}, "html"),
        ({"html": "{{{content}}}{{#open}}"}, "html"),
        ({"html": "{{{content}}}\0"}, "html"),
        ({"html": "{{{content}}}" + "x" * types.MAX_LAYOUT}, "html"),
        ({"text": "no place"}, "text"),
        ({"text": "{{{content}}} {{{content}}}"}, "text"),
        ({"variables": [{"name": "content"}]}, "variables[0].name"),
        ({"id": "preview"}, "id"),
        ({"layout": "brand"}, "layout"),
        ({"subject": "x"}, "subject"),
    ],
)
async def test_a_wrong_layout_is_refused_with_its_field(
    api: Api, account: TestAccount, fields: dict[str, object], field: str
) -> None:
    assert refuses(await api.post("/v1/layouts", account.token, BRAND | fields), field)


async def test_the_id_of_a_layout_is_taken_once_and_counts_on_after_a_deletion(api: Api, account: TestAccount) -> None:
    await make_layout(api, account)
    again = await api.post("/v1/layouts", account.token, BRAND)
    assert (again.status, again.error["type"]) == (409, "conflict")
    assert (await make_layout(api, account, id=None, name="Brand"))["id"].startswith("brand-")
    assert (await make_layout(api, account, id=None))["id"].startswith("layout-")
    await api.request("DELETE", "/v1/layouts/brand", token=account.token)
    assert (await make_layout(api, account))["version"] == 2


async def test_a_layout_in_use_is_not_deleted(api: Api, account: TestAccount) -> None:
    await make_layout(api, account)
    for number in range(12):
        await publish(api, account, **FIELDS | {"id": f"t-{number:02}"})
    answer = await api.request("DELETE", "/v1/layouts/brand", token=account.token)
    assert (answer.status, answer.error["type"]) == (409, "conflict")
    assert answer.error["templates"] == [f"t-{number:02}" for number in range(12)]
    assert "t-09 and 2 more" in answer.error["message"]
    for number in range(11):
        await change(api, account, f"t-{number:02}", layout=None)
    await api.request("DELETE", "/v1/templates/t-11", token=account.token)
    assert (await api.request("DELETE", "/v1/layouts/brand", token=account.token)).status == 204
    assert (await shown(api, account, "t-00", version=1))[0] == "<main><b>&lt;Ann&gt;</b></main><p>A &amp; B</p>"


async def test_the_database_refuses_to_change_a_version(api: Api, pool: asyncpg.Pool, account: TestAccount) -> None:
    await make_layout(api, account)
    with pytest.raises(DatabaseError, match="does not change"):
        await pool.execute("UPDATE layout_versions SET text = 'x' WHERE account_id = $1", account.id)


# templates in it --------------------------------------------------------------------------------


async def test_a_template_stands_in_its_layout_in_previews_and_sends(api: Api, account: TestAccount) -> None:
    await make_layout(api, account)
    made = await publish(api, account, **FIELDS)
    assert (made["layout"], made["layoutVersion"], made["html"]) == ("brand", 1, FIELDS["html"])
    html, text = "<main><b>&lt;Ann&gt;</b></main><p>A &amp; B</p>", "Hi <Ann>\n-- A & B"
    assert await shown(api, account) == (html, text)

    values = {"name": "<Ann>", "company": "A & B"}
    sent = account.email(template="hi", variables=values, subject=None, text=None)
    made = (await api.post("/v1/emails", account.token, sent)).json
    read = (await api.get(f"/v1/messages/{made['id']}", account.token)).json
    assert (read["html"], read["text"].rstrip()) == (html, text)
    assert (await api.post("/v1/emails", account.token, sent | {"dryRun": True})).status == 200

    unsaved = {"html": "<i>x</i>", "text": "x", "layout": "brand", "values": values}
    preview = (await api.post("/v1/templates/preview", account.token, unsaved)).json
    assert (preview["html"], preview["text"]) == ("<main><i>x</i></main><p>A &amp; B</p>", "x\n-- A & B")


async def test_a_part_that_the_template_or_the_layout_lacks_stands_alone(api: Api, account: TestAccount) -> None:
    await make_layout(api, account, text=None)
    await publish(api, account, **FIELDS)
    assert (await shown(api, account))[1] == "Hi <Ann>"
    await publish(api, account, **FIELDS | {"id": "plain", "html": None})
    preview = await api.post("/v1/templates/plain/preview", account.token, {"variables": {"name": "x"}})
    assert (preview.json["html"], preview.json["text"]) == (None, "Hi x")
    await publish(api, account, **FIELDS | {"id": "empty", "html": "", "text": None})
    answer = await api.post("/v1/templates/empty/preview", account.token, {"variables": {"name": "x"}})
    assert (answer.status, answer.error["type"]) == (422, "template_error")


async def test_variables_of_the_layout_are_those_of_its_templates(api: Api, account: TestAccount) -> None:
    declared = [{"name": "company", "required": True}, {"name": "name", "default": "reader"}]
    await make_layout(api, account, variables=declared)
    made = await publish(api, account, **FIELDS | {"variables": []})
    assert (made["variables"], [one["code"] for one in made["warnings"]]) == ([], [])
    missing = await api.post("/v1/templates/hi/preview", account.token, {})
    assert (missing.status, missing.error["missing"]) == (422, ["company"])
    html, _ = await shown(api, account, variables={"company": "Shop"})
    assert html == "<main><b>reader</b></main><p>Shop</p>"
    own = [{"name": "company", "default": "Mine"}]
    made = (await change(api, account, "hi", variables=own)).json
    assert made["warnings"] == []
    assert (await shown(api, account, variables={}))[0] == "<main><b>reader</b></main><p>Mine</p>"


async def test_data_and_sections_work_in_layout_and_template(api: Api, account: TestAccount) -> None:
    html = "{{#links}}<a>{{.}}</a>{{/links}}{{{content}}}{{^links}}no links{{/links}}{{#shop}}{{name}}{{/shop}}"
    await make_layout(api, account, html=html)
    await publish(api, account, **FIELDS | {"html": "{{#items}}{{title}};{{/items}}", "variables": []})
    data = {"links": ["a", "b"], "items": [{"title": "Lamp"}, {"title": "Desk"}], "shop": {"name": "Shop"}}
    assert (await shown(api, account, variables={}, data=data))[0] == "<a>a</a><a>b</a>Lamp;Desk;Shop"
    assert (await shown(api, account, variables={}, data={"items": []}))[0] == "no links"


async def test_a_template_may_have_a_variable_named_content(api: Api, account: TestAccount) -> None:
    await make_layout(api, account)
    await publish(api, account, **FIELDS | {"html": "{{content}}", "variables": []})
    html, _ = await shown(api, account, variables={"content": "<x>", "company": "y"})
    assert html == "<main>&lt;x&gt;</main><p>y</p>"


# changes ----------------------------------------------------------------------------------------


async def test_a_change_publishes_each_template_that_uses_the_layout(api: Api, account: TestAccount) -> None:
    await make_layout(api, account)
    for slug in ("hi", "other"):
        await publish(api, account, **FIELDS | {"id": slug})
    await publish(api, account, id="alone")
    await change(api, account, "hi", text="Ho {{name}}")
    before = (await api.get("/v1/templates/hi/versions", account.token)).json["data"]

    changed = (await patch(api, account, html="<div>{{{content}}}</div>")).json
    assert (changed["version"], changed["templates"]) == (2, ["hi", "other"])
    latest = (await api.get("/v1/templates/hi", account.token)).json
    assert (latest["version"], latest["layoutVersion"], latest["text"]) == (3, 2, "Ho {{name}}")
    assert latest["variables"] == before[0]["variables"]
    versions = (await api.get("/v1/templates/hi/versions", account.token)).json["data"]
    assert versions[1:] == before
    assert {**versions[0], "createdAt": None} == {**before[0], "version": 3, "layoutVersion": 2, "createdAt": None}
    assert (await api.get("/v1/templates/alone", account.token)).json["version"] == 1
    assert (await shown(api, account))[0] == "<div><b>&lt;Ann&gt;</b></div>"
    assert (await shown(api, account, version=2))[0].startswith("<main>")

    again = (await patch(api, account, html="<p>{{{content}}}</p>")).json
    assert again["version"] == 3
    assert await shown(api, account) == ("<p><b>&lt;Ann&gt;</b></p>", "Ho <Ann>\n-- A & B")
    edited = (await change(api, account, "hi", html="new")).json
    assert (edited["version"], edited["layoutVersion"], edited["text"]) == (5, 3, "Ho {{name}}")


async def test_sends_use_a_changed_layout_at_once(api: Api, account: TestAccount) -> None:
    await make_layout(api, account)
    await publish(api, account, **FIELDS)
    sent = account.email(template="hi", variables={"name": "x"}, subject=None, text=None)

    async def html_of(**fields: object) -> str:
        made = (await api.post("/v1/emails", account.token, sent | fields)).json
        return str((await api.get(f"/v1/messages/{made['id']}", account.token)).json["html"])

    assert (await html_of()).startswith("<main>")
    await patch(api, account, html="<div>{{{content}}}</div>")
    assert await html_of() == "<div><b>x</b></div>"
    assert (await html_of(templateVersion=1)).startswith("<main>")


async def test_a_change_from_an_older_version_or_of_nothing_publishes_nothing(api: Api, account: TestAccount) -> None:
    await make_layout(api, account)
    await publish(api, account, **FIELDS)
    assert (await patch(api, account, html=BRAND["html"], name="Brand")).json["version"] == 1
    late = await patch(api, account, html="{{{content}}}", ifVersion=7)
    assert (late.status, late.error["type"], late.error["version"]) == (409, "conflict", 1)
    assert refuses(await patch(api, account, html="nothing"), "html")
    assert (await api.get("/v1/templates/hi", account.token)).json["version"] == 1
    assert (await patch(api, account, "unknown", name="x")).status == 404


async def test_a_template_names_a_layout_of_its_own_account(api: Api, pool: asyncpg.Pool, account: TestAccount) -> None:
    await make_layout(api, await make_account(pool))
    assert refuses(await api.post("/v1/templates", account.token, FIELDS), "layout")
    await publish(api, account, id="hi")
    assert refuses(await change(api, account, "hi", layout="brand"), "layout")
    assert refuses(await api.post("/v1/templates/preview", account.token, {"html": "", "layout": "brand"}), "layout")


async def test_a_layout_has_a_bounded_number_of_templates(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool, plan="scale")
    await make_layout(api, account)
    for table, columns, values in (
        ("templates", "version", "1"),
        ("template_versions", "version, text, layout, layout_version", "1, 'x', 'brand', 1"),
    ):
        await pool.execute(
            f"INSERT INTO {table} (account_id, slug, {columns})"
            f" SELECT $1, 't-' || n, {values} FROM generate_series(1, $2::int) n",
            account.id,
            types.MAX_LAYOUT_USES,
        )
    assert refuses(await api.post("/v1/templates", account.token, FIELDS), "layout")
    assert (await change(api, account, "t-1", text="again")).status == 200
    assert len((await patch(api, account, html="{{{content}}}")).json["templates"]) == types.MAX_LAYOUT_USES


async def test_changes_of_a_layout_and_of_its_template_at_the_same_time_lose_nothing(
    api: Api, account: TestAccount
) -> None:
    await make_layout(api, account)
    await publish(api, account, **FIELDS)
    layouts = [patch(api, account, html=f"<p>{number}{{{{{{content}}}}}}</p>") for number in range(5)]
    templates = [change(api, account, "hi", text=f"{number}") for number in range(5)]
    assert {one.status for one in await asyncio.gather(*layouts, *templates)} == {200}
    layout = (await api.get("/v1/layouts/brand", account.token)).json
    latest = (await api.get("/v1/templates/hi", account.token)).json
    assert (layout["version"], latest["layoutVersion"], latest["version"]) == (6, 6, 11)
    numbers = [row["version"] for row in (await api.get("/v1/templates/hi/versions", account.token)).json["data"]]
    assert numbers == list(range(11, 0, -1))


async def test_a_copy_has_the_layout_of_the_original(api: Api, account: TestAccount) -> None:
    await make_layout(api, account)
    await publish(api, account, **FIELDS)
    await patch(api, account, html="<div>{{{content}}}</div>")
    copy = (await api.post("/v1/templates/hi/duplicate", account.token, {"id": "ho"})).json
    assert (copy["layout"], copy["layoutVersion"], copy["html"]) == ("brand", 2, FIELDS["html"])


async def test_a_test_mail_has_the_layout(api: Api, pool: asyncpg.Pool, account: TestAccount) -> None:
    ann = await make_person(pool, account.id)
    await make_layout(api, account)
    await publish(api, account, **FIELDS)
    body = {"from": account.sender, "to": [ann.email], "variables": {"name": "x"}}
    [row] = (await api.post("/v1/templates/hi/test", account.token, body)).json["data"]
    assert (await api.get(f"/v1/messages/{row['id']}", account.token)).json["html"].startswith("<main><b>x</b>")


async def test_a_layout_is_previewed_around_a_sample_or_a_template(api: Api, account: TestAccount) -> None:
    await make_layout(api, account)
    await publish(api, account, **FIELDS)
    unsaved = {"html": "<div>{{{content}}}{{company}}</div>", "values": {"company": "Shop", "name": "x"}}
    sample = (await api.post("/v1/layouts/preview", account.token, unsaved)).json
    assert "The content of a template goes here." in sample["html"]
    assert sample["html"].endswith("Shop</div>")
    around = (await api.post("/v1/layouts/preview", account.token, unsaved | {"template": "hi"})).json
    assert (around["html"], around["subject"]) == ("<div><b>x</b>Shop</div>", "Hi x")
    assert [one["variable"] for one in around["warnings"]] == ["company"]
    assert refuses(await api.post("/v1/layouts/preview", account.token, unsaved | {"template": "no"}), "template")
    assert refuses(await api.post("/v1/layouts/preview", account.token, {"html": "none"}), "html")


async def test_each_change_is_in_the_account_log(api: Api, pool: asyncpg.Pool, account: TestAccount) -> None:
    await make_layout(api, account)
    await publish(api, account, **FIELDS)
    await patch(api, account, html="{{{content}}}", name="Brand")
    await patch(api, account, name=None)
    await change(api, account, "hi", layout=None)
    await api.request("DELETE", "/v1/layouts/brand", token=account.token)
    told = {"id": "brand", "actor": await key_of(pool, account)}
    found = [one for one in await logged(pool, account.id) if one[0].startswith("layout.")]
    assert found == [
        ("layout.created", told | {"name": None, "version": 1}),
        ("layout.published", told | {"version": 2, "templates": ["hi"], "name": "Brand"}),
        ("layout.renamed", told | {"name": None}),
        ("layout.deleted", told | {"version": 2}),
    ]
