"""Templates read: lists and their pages, previews, and who may see what."""

import asyncpg
import pytest

from tests.harness.account_log import logged
from tests.harness.accounts import TestAccount, make_account
from tests.harness.api import Answer, Api, refuses
from tests.sending.test_templates import HELLO, JSON, change, delete, publish

# lists -----------------------------------------------------------------------------------------


async def test_templates_are_listed_newest_first_without_their_bodies(api: Api, account: TestAccount) -> None:
    made = [await publish(api, account, id=f"t{number}", name=f"T{number}") for number in range(3)]
    page = (await api.get("/v1/templates", account.token)).json

    assert page == {
        "data": [
            {name: one[name] for name in ("id", "name", "version", "subject", "layout", "createdAt", "updatedAt")}
            for one in reversed(made)
        ],
        "nextCursor": None,
    }


async def test_pages_follow_each_other_without_gap_or_repeat(api: Api, account: TestAccount) -> None:
    for number in range(7):
        await publish(api, account, id=f"t{number}")
    found, cursor = [], ""
    while True:
        page = (await api.get(f"/v1/templates?limit=3{cursor}", account.token)).json
        found += [row["id"] for row in page["data"]]
        if page["nextCursor"] is None:
            break
        await delete(api, account, page["nextCursor"])  # a cursor outlives what it names
        cursor = f"&before={page['nextCursor']}"

    assert found == [f"t{number}" for number in reversed(range(7))]


async def test_a_page_of_long_versions_is_bounded_in_bytes(api: Api, account: TestAccount) -> None:
    await publish(api, account, id="long", text="x")
    for number in range(6):
        answer = await change(api, account, "long", html=f"{number}" + "é" * 999_999)
        assert answer.status == 200
    found, cursor, pages = [], "", []
    while True:
        page = (await api.get(f"/v1/templates/long/versions{cursor}", account.token)).json
        found += [one["version"] for one in page["data"]]
        pages.append(len(page["data"]))
        if page["nextCursor"] is None:
            break
        cursor = f"?before={page['nextCursor']}"

    assert found == [7, 6, 5, 4, 3, 2, 1]
    assert pages == [4, 3]


@pytest.mark.parametrize("query", ["before=0", "before=x", "before=1.5", "limit=101", "limit=0"])
async def test_a_bad_version_cursor_is_refused(api: Api, account: TestAccount, query: str) -> None:
    await publish(api, account, id="welcome")
    answer = await api.get(f"/v1/templates/welcome/versions?{query}", account.token)

    assert refuses(answer, query.partition("=")[0])


async def test_a_version_cursor_beyond_any_version_starts_at_the_newest(api: Api, account: TestAccount) -> None:
    await publish(api, account, id="welcome")
    answer = await api.get(f"/v1/templates/welcome/versions?before={10**30}", account.token)

    assert [one["version"] for one in answer.json["data"]] == [1]


# previews --------------------------------------------------------------------------------------


async def test_a_preview_is_what_a_send_would_write(api: Api, account: TestAccount) -> None:
    await publish(
        api,
        account,
        id="welcome",
        html='<a title="{{name}}">{{#vip}}*{{/vip}}{{{sign}}}</a>',
        variables=[{"name": "name", "required": True}, {"name": "sign", "default": "<b>S</b>"}, {"name": "vip"}],
    )
    values = {"name": 'Ann & "Bob"', "unused": "x"}
    answer = await api.post("/v1/templates/welcome/preview", account.token, {"variables": values})

    assert answer.status == 200
    assert answer.json == {
        "source": None,
        "template": "welcome",
        "version": 1,
        "subject": 'Hi Ann & "Bob"',
        "html": '<a title="Ann &amp; &quot;Bob&quot;"><b>S</b></a>',
        "text": 'Hello Ann & "Bob"!',
        "warnings": answer.json["warnings"],
    }
    assert [one["code"] for one in answer.json["warnings"]] == ["raw_value"]


async def test_any_version_can_be_previewed(api: Api, account: TestAccount) -> None:
    await publish(api, account, id="welcome", text="one", variables=[])
    await change(api, account, "welcome", text="two")

    async def preview(body: object) -> Answer:
        return await api.post("/v1/templates/welcome/preview", account.token, body)

    assert (await preview({"version": 1})).json["text"] == "one"
    assert (await preview({"version": 2})).json["text"] == "two"
    assert (await preview({})).json["text"] == "two"
    bare = await api.request("POST", "/v1/templates/welcome/preview", token=account.token, headers=JSON)
    assert bare.json["text"] == "two"
    for version in (3, 2**31, 10**30):
        body = b'{"version": %d}' % version
        answer = await api.post("/v1/templates/welcome/preview", account.token, body=body)
        assert (answer.status, answer.error["type"]) == (422, "template_error")
        assert (answer.error["missing"], answer.error["template"]) == ([], "welcome")
    assert refuses(await preview({"version": 0}), "version")


async def test_every_missing_required_variable_is_named(api: Api, account: TestAccount) -> None:
    variables = [
        {"name": "a", "required": True},
        {"name": "b", "required": True},
        {"name": "c", "required": True, "default": "C"},
        {"name": "d"},
        {"name": "e", "required": True},
    ]
    await publish(api, account, id="welcome", text="{{a}}{{b}}{{c}}{{d}}", variables=variables)
    answer = await api.post("/v1/templates/welcome/preview", account.token, {"variables": {"b": ""}})

    assert (answer.status, answer.error["type"]) == (422, "template_error")
    assert (answer.error["missing"], answer.error["template"], answer.error["version"]) == (["a", "e"], "welcome", 1)


@pytest.mark.parametrize("break_", ["\r", "\n", "\r\nBcc: eve@evil.test"])
async def test_a_value_never_adds_a_header(api: Api, account: TestAccount, break_: str) -> None:
    await publish(api, account, id="welcome")
    body = {"variables": {"name": f"Ann{break_}"}}
    answer = await api.post("/v1/templates/welcome/preview", account.token, body)

    assert refuses(answer, "variables.name")
    assert "subject" in answer.error["message"]


async def test_a_subject_that_comes_out_too_long_is_refused(api: Api, account: TestAccount) -> None:
    await publish(api, account, id="welcome", subject="{{name}}")
    for length, status in ((998, 200), (999, 422)):
        body = {"variables": {"name": "x" * length}}
        assert (await api.post("/v1/templates/welcome/preview", account.token, body)).status == status


async def test_a_result_beyond_what_a_send_may_carry_is_refused(api: Api, account: TestAccount) -> None:
    await publish(api, account, id="welcome", subject="s", text="{{name}}" * 1001)
    body = {"variables": {"name": "x" * 5000}}
    answer = await api.post("/v1/templates/welcome/preview", account.token, body)

    assert (answer.status, answer.error["type"]) == (422, "template_error")


@pytest.mark.parametrize(
    ("variables", "field"),
    [
        ({"name": "a\0"}, "variables.name"),
        ({"name": "x" * 5001}, "variables.name"),
        ({"n" * 65: "x"}, "variables"),
        ({"": "x"}, "variables"),
        ({"name": 5}, "variables.name"),
        ({"name": None}, "variables.name"),
        (["name"], "variables"),
    ],
)
async def test_a_bad_value_is_named(api: Api, account: TestAccount, variables: object, field: str) -> None:
    await publish(api, account, id="welcome")

    assert refuses(await api.post("/v1/templates/welcome/preview", account.token, {"variables": variables}), field)


async def test_unsaved_content_is_previewed_and_stored_nowhere(
    api: Api, pool: asyncpg.Pool, account: TestAccount
) -> None:
    body = HELLO | {"html": "<p>{{name}}</p>", "values": {"name": "<Ann>"}}
    answer = await api.post("/v1/templates/preview", account.token, body)

    assert answer.status == 200
    assert answer.json == {
        "source": None,
        "template": None,
        "version": None,
        "subject": "Hi <Ann>",
        "html": "<p>&lt;Ann&gt;</p>",
        "text": "Hello <Ann>!",
        "warnings": [],
    }
    assert (await api.get("/v1/templates", account.token)).json["data"] == []
    assert await logged(pool, account.id) == []


async def test_unsaved_content_is_held_to_the_same_rules(api: Api, account: TestAccount) -> None:
    async def preview(**fields: object) -> Answer:
        return await api.post("/v1/templates/preview", account.token, HELLO | fields)

    missing = await preview()
    assert (missing.status, missing.error["missing"]) == (422, ["name"])
    assert (missing.error["template"], missing.error["version"]) == (None, None)
    assert refuses(await preview(html="{{#a}}"), "html")
    assert refuses(await preview(subject="a\nb"), "subject")
    assert refuses(await preview(values={"name": "\0"}), "values.name")
    assert refuses(await preview(values={"name": "a\nb"}), "values.name")
    unfinished = await preview(text=None, values={"name": "Ann"})
    assert (unfinished.json["subject"], unfinished.json["text"]) == ("Hi Ann", None)
    assert [one["code"] for one in unfinished.json["warnings"]] == ["no_content"]
    assert refuses(await preview(name="x"), "name")
    odd = await preview(values={"name": "x"}, text="{{other}}")
    assert [one["code"] for one in odd.json["warnings"]] == ["undeclared_variable"]


async def test_a_large_template_is_previewed_off_the_loop(api: Api, account: TestAccount) -> None:
    html = "<p>{{name}}</p>" + "x" * 900_000
    body = HELLO | {"html": html, "values": {"name": "Ann"}}
    answer = await api.post("/v1/templates/preview", account.token, body)

    assert answer.json["html"] == html.replace("{{name}}", "Ann")


# who may ---------------------------------------------------------------------------------------


async def test_templates_of_others_do_not_exist(api: Api, pool: asyncpg.Pool, account: TestAccount) -> None:
    await publish(api, account, id="welcome")
    stranger = await make_account(pool)

    for answer in (
        await api.get("/v1/templates/welcome", stranger.token),
        await api.get("/v1/templates/welcome/versions", stranger.token),
        await api.post("/v1/templates/welcome/preview", stranger.token, {}),
        await change(api, stranger, "welcome", text="x"),
        await delete(api, stranger, "welcome"),
    ):
        assert (answer.status, answer.error["type"]) == (404, "not_found")
    assert (await api.get("/v1/templates", stranger.token)).json["data"] == []
    assert refuses(await api.get("/v1/templates?before=welcome", stranger.token), "before")
    assert (await publish(api, stranger, id="welcome"))["version"] == 1


@pytest.mark.parametrize("slug", ["Welcome", "wel%00come", "welcome%0A", "%F0%9F%98%80", "a" * 65, "msg_01h", "a--b"])
async def test_what_is_no_slug_names_no_template(api: Api, account: TestAccount, slug: str) -> None:
    for answer in (
        await api.get(f"/v1/templates/{slug}", account.token),
        await api.get(f"/v1/templates/{slug}/versions", account.token),
        await api.post(f"/v1/templates/{slug}/preview", account.token, {}),
        await change(api, account, slug, text="x"),
        await delete(api, account, slug),
    ):
        assert (answer.status, answer.error["type"]) == (404, "not_found")
