"""Cached template versions, and equal results of send and preview."""

import asyncio
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from engine.base.errors import ErrorType, Refusal
from engine.sending.templates import layout_service, rules, store
from engine.sending.templates import service as templates_service
from engine.sending.templates.layout_service import LayoutEdit
from engine.sending.templates.service import TemplateEdit
from engine.sending.templates.store import TemplateCache
from engine.sending.templates.types import LayoutContent, TemplateContent, Variable
from engine.store import caches
from engine.store.caches import Stamps
from tests.harness.accounts import TestAccount
from tests.harness.api import Answer, Api


async def publish(pool: asyncpg.Pool, account: UUID, slug: str, text: str) -> int:
    """The next version of a template, or its first."""
    try:
        opened = await templates_service.change(pool, account, slug, TemplateEdit(text=text))
    except Refusal:
        content = TemplateContent("Hi", None, text, ())
        opened = await templates_service.create(pool, account, slug=slug, name=None, content=content)
    return opened.version


async def text_of(
    shelf: TemplateCache, account: UUID, slug: str, version: int | None = None
) -> tuple[int, str | None] | None:
    found = await shelf.get(account, slug, version)
    return None if found is None else (found.version, rules.render(found, {}).text)


async def test_the_latest_version_is_the_one_without_a_number(pool: asyncpg.Pool, account: TestAccount) -> None:
    for text in ("one", "two", "three"):
        await publish(pool, account.id, "welcome", text)
    shelf = TemplateCache(pool)

    assert await text_of(shelf, account.id, "welcome") == (3, "three")
    assert [await text_of(shelf, account.id, "welcome", number) for number in (1, 2, 3)] == [
        (1, "one"),
        (2, "two"),
        (3, "three"),
    ]


async def test_other_processes_hear_of_a_changed_layout_by_the_stamp(
    pool: asyncpg.Pool, account: TestAccount, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(caches, "clear_here", lambda kind, account=None: None)  # the change is made in another process
    shelf = TemplateCache(pool)
    stamps = Stamps(pool, [shelf.latest])
    layout = LayoutContent("{{{content}}}", "<{{{content}}}>", ())
    await layout_service.create(pool, account.id, slug="brand", name=None, content=layout)
    content = TemplateContent("Hi", None, "one", (), "brand")
    await templates_service.create(pool, account.id, slug="welcome", name=None, content=content)
    await stamps.check()
    assert await text_of(shelf, account.id, "welcome") == (1, "<one>")
    await layout_service.change(pool, account.id, "brand", LayoutEdit(text="[{{{content}}}]"))
    await stamps.check()
    assert await text_of(shelf, account.id, "welcome") == (2, "[one]")
    assert await text_of(shelf, account.id, "welcome", 1) == (1, "<one>")


@pytest.mark.parametrize("version", [0, 2, 2**31 - 1, 2**31, 2**63, 10**30])
async def test_a_version_that_does_not_exist_is_none(pool: asyncpg.Pool, account: TestAccount, version: int) -> None:
    await publish(pool, account.id, "welcome", "one")

    assert await TemplateCache(pool).get(account.id, "welcome", version) is None
    assert await store.load(pool, account.id, "welcome", version) is None


async def test_a_template_just_made_is_found_by_a_process_that_missed_it(
    pool: asyncpg.Pool, account: TestAccount
) -> None:
    shelf = TemplateCache(pool)
    assert await shelf.get(account.id, "welcome", None) is None
    await publish(pool, account.id, "welcome", "one")

    assert await text_of(shelf, account.id, "welcome") == (1, "one")


async def test_a_version_just_published_is_found_by_its_number_at_once(
    pool: asyncpg.Pool, account: TestAccount
) -> None:
    shelf = TemplateCache(pool)
    await publish(pool, account.id, "welcome", "one")
    assert await text_of(shelf, account.id, "welcome") == (1, "one")
    await publish(pool, account.id, "welcome", "two")

    assert await text_of(shelf, account.id, "welcome", 2) == (2, "two")


async def test_other_processes_hear_of_a_change_by_the_stamp(
    pool: asyncpg.Pool, account: TestAccount, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(caches, "clear_here", lambda kind, account=None: None)  # the change is made in another process
    shelf = TemplateCache(pool)
    stamps = Stamps(pool, [shelf.latest])
    await publish(pool, account.id, "welcome", "one")
    await stamps.check()
    assert await text_of(shelf, account.id, "welcome") == (1, "one")
    await publish(pool, account.id, "welcome", "two")
    await stamps.check()
    assert await text_of(shelf, account.id, "welcome") == (2, "two")
    await templates_service.delete(pool, account.id, "welcome")
    await stamps.check()

    assert await shelf.get(account.id, "welcome", None) is None
    assert await shelf.get(account.id, "welcome", 1) is None


async def test_a_version_is_compiled_once(pool: asyncpg.Pool, account: TestAccount) -> None:
    await publish(pool, account.id, "welcome", "one")
    shelf = TemplateCache(pool)
    first = await shelf.get(account.id, "welcome", None)

    assert await shelf.get(account.id, "welcome", 1) is first
    shelf.latest.clear()
    assert await shelf.get(account.id, "welcome", None) is first


async def test_what_a_process_keeps_is_bounded_in_bytes(
    pool: asyncpg.Pool, account: TestAccount, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "MAX_HELD", 500_000)
    for number in range(8):
        await publish(pool, account.id, "welcome", str(number) * 100_000)
    shelf = TemplateCache(pool)
    for number in (1, 2, 3, 4, 1, 5, 6, 7, 8, 8):
        assert await text_of(shelf, account.id, "welcome", number) == (number, str(number - 1) * 100_000)
        assert shelf.held_bytes <= 500_000
    first = await shelf.get(account.id, "welcome", 8)

    assert shelf.held_bytes > 400_000
    assert await shelf.get(account.id, "welcome", 8) is first


async def test_one_template_larger_than_the_bound_is_still_kept(
    pool: asyncpg.Pool, account: TestAccount, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "MAX_HELD", 1000)
    await publish(pool, account.id, "welcome", "x" * 5000)
    shelf = TemplateCache(pool)

    assert await shelf.get(account.id, "welcome", None) is await shelf.get(account.id, "welcome", None)


async def test_parallel_first_uses_count_their_bytes_once(pool: asyncpg.Pool, account: TestAccount) -> None:
    await publish(pool, account.id, "welcome", "x" * 5000)
    shelf = TemplateCache(pool)
    await asyncio.gather(*(shelf.get(account.id, "welcome", None) for _ in range(8)))
    found = await shelf.get(account.id, "welcome", None)

    assert found is not None
    assert shelf.held_bytes == rules.bytes_of(found)


def test_values_win_over_defaults_and_names_unused_are_ignored() -> None:
    variables = (Variable("a", default="A"), Variable("b", required=True), Variable("c"))
    checked = rules.checked(TemplateContent(None, None, "{{a}}{{b}}{{c}}", variables))
    version = rules.prepared(checked.template, variables)

    assert rules.render(version, {"b": "B", "z": "Z"}).text == "AB"
    assert rules.render(version, {"b": "B", "a": "", "c": "C"}).text == "BC"
    assert rules.render(version, {"b": "B"}).subject == ""


def test_a_default_can_break_a_subject_too() -> None:
    variables = (Variable("a", default="x\ny"),)
    version = rules.prepared(rules.checked(TemplateContent("{{a}}", None, "t", variables)).template, variables)

    with pytest.raises(Refusal) as caught:
        rules.render(version, {})
    assert (caught.value.kind, caught.value.fields) == (ErrorType.INVALID_REQUEST, {"field": "variables.a"})
    assert rules.render(version, {"a": "fine"}).subject == "fine"
    assert rules.render(version, {}, subject="Given").subject == "Given"


def test_a_value_that_the_subject_only_asks_about_may_hold_line_breaks() -> None:
    content = TemplateContent("{{#note}}With a note from {{name}}{{/note}}", None, "{{note}}", ())
    version = rules.prepared(rules.checked(content).template, ())

    assert rules.render(version, {"note": "a\nb", "name": "Ann"}).subject == "With a note from Ann"
    with pytest.raises(Refusal) as caught:
        rules.render(version, {"note": "a\nb", "name": "Ann\n"})
    assert caught.value.fields == {"field": "variables.name"}


# a send and a preview --------------------------------------------------------------------------

WELCOME: dict[str, Any] = {
    "id": "welcome",
    "subject": "Hi {{name}}",
    "html": "<p>{{name}}{{#vip}}!{{/vip}}</p>",
    "text": "{{name}}\n{{#vip}}\nYou are dear to us.\n{{/vip}}\nBye",
    "variables": [{"name": "name", "required": True}, {"name": "vip"}],
}


async def both(api: Api, account: TestAccount, values: dict[str, str], version: int | None = None) -> list[Answer]:
    """The preview and the send with the same values."""
    body = {"variables": values} | ({} if version is None else {"version": version})
    fields: dict[str, object] = {"template": "welcome", "templateVersion": version, "variables": values}
    request = account.email(subject=None, text=None, **fields)
    return [
        await api.post("/v1/templates/welcome/preview", account.token, body),
        await api.post("/v1/emails", account.token, request),
    ]


async def test_a_send_writes_what_the_preview_showed(api: Api, account: TestAccount) -> None:
    assert (await api.post("/v1/templates", account.token, WELCOME)).status == 201
    preview, sent = await both(api, account, {"name": "Ann <3", "vip": "yes"})
    message = (await api.get(f"/v1/messages/{sent.json['id']}", account.token)).json

    assert (message["subject"], message["html"]) == (preview.json["subject"], preview.json["html"])
    assert message["text"].replace("\r\n", "\n") == preview.json["text"]
    assert (message["template"], message["templateVersion"]) == ("welcome", 1)


@pytest.mark.parametrize(
    ("values", "version"),
    [({}, None), ({"name": "a\nb"}, None), ({"name": "a"}, 2), ({"name": "a\0"}, None), ({"name": "x" * 999}, None)],
    ids=["missing", "line break", "version", "NUL", "long subject"],
)
async def test_a_preview_refuses_as_the_send_does(
    api: Api, account: TestAccount, values: dict[str, str], version: int | None
) -> None:
    assert (await api.post("/v1/templates", account.token, WELCOME)).status == 201
    preview, sent = await both(api, account, values, version)

    assert preview.status >= 400
    assert (preview.status, preview.json) == (sent.status, sent.json)


async def test_a_deleted_template_is_not_sent(api: Api, account: TestAccount) -> None:
    assert (await api.post("/v1/templates", account.token, WELCOME)).status == 201
    assert (await both(api, account, {"name": "Ann"}))[1].status == 202
    await api.request("DELETE", "/v1/templates/welcome", token=account.token)
    sent = (await both(api, account, {"name": "Ann"}))[1]

    assert (sent.status, sent.error["type"], sent.error["template"]) == (422, "template_error", "welcome")


async def test_a_change_shows_in_the_very_next_send(api: Api, account: TestAccount) -> None:
    assert (await api.post("/v1/templates", account.token, WELCOME)).status == 201
    await both(api, account, {"name": "Ann"})
    body = b'{"subject": "Bye {{name}}"}'
    headers = {"Content-Type": "application/json"}
    await api.request("PATCH", "/v1/templates/welcome", token=account.token, body=body, headers=headers)
    sent = (await both(api, account, {"name": "Ann"}))[1]

    assert (await api.get(f"/v1/messages/{sent.json['id']}", account.token)).json["subject"] == "Bye Ann"
