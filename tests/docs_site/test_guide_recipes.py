"""The recipes of the guides for Django and Flask, run as they are printed, with the real packages."""

import asyncio
import json
import sys
import time
from collections.abc import Callable, Iterator
from email.message import Message, MIMEPart
from email.mime.image import MIMEImage
from pathlib import Path
from typing import Any

import asyncpg
import django  # type: ignore[import-untyped]
import django.core.mail as django_mail  # type: ignore[import-untyped]
import flask
import httpx
import pytest
from django.conf import settings as django_settings  # type: ignore[import-untyped]
from django.test.utils import override_settings  # type: ignore[import-untyped]

from engine.events.webhooks.rules import signature
from tests.harness.accounts import TestAccount
from tests.harness.api import Api
from tests.harness.codes import code_of
from tests.harness.guides import guides
from tests.harness.receiver import Receiver

if not django_settings.configured:
    django_settings.configure()


def printed(slug: str, name: str) -> str:
    """The file of a guide with this label."""
    [fence] = [one for one in guides()[slug].samples if f"name={name}" in one.words]
    return fence.text


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str, str], Any]]:
    """Return a function that imports a file of a guide under a name of its own."""
    monkeypatch.syspath_prepend(tmp_path)
    made: list[str] = []

    def load(slug: str, label: str, name: str) -> Any:
        (tmp_path / f"{name}.py").write_text(printed(slug, label))
        made.append(name)
        return __import__(name)

    yield load
    for name in made:
        sys.modules.pop(name, None)


def django_backend(path: str) -> dict[str, Any]:
    """Return the settings that name a backend: before Django 6.1 EMAIL_BACKEND, since then MAILERS."""
    if django.VERSION < (6, 1):
        return {"EMAIL_BACKEND": path}
    return {"MAILERS": {"default": {"BACKEND": path}, "silent": {"BACKEND": path, "OPTIONS": {"fail_silently": True}}}}


def django_connection(*, silently: bool = False) -> Any:
    """Return a connection of the backend that the settings name."""
    if django.VERSION < (6, 1):
        return django_mail.get_connection(fail_silently=silently)
    return django_mail.mailers["silent" if silently else "default"]


def inline_logo() -> Message:
    """Return an image with a Content-ID as Django takes it: a MIMEImage, since 6.0 a MIMEPart."""
    if django.VERSION < (6, 0):
        logo: Message = MIMEImage(b"GIF89a", "gif")
        logo.add_header("Content-ID", "<logo>")
        logo.add_header("Content-Disposition", "inline", filename="logo.gif")
        return logo
    part = MIMEPart()
    part.set_content(b"GIF89a", "image", "gif", disposition="inline", filename="logo.gif", cid="<logo>")
    return part


async def messages(api: Api, account: TestAccount) -> list[Any]:
    """The account's messages with their bodies, oldest first."""
    listed = (await api.get("/v1/messages", account.token)).json["data"]
    return [(await api.get(f"/v1/messages/{one['id']}", account.token)).json for one in reversed(listed)]


async def test_django_sends_through_the_backend(
    api: Api, api_url: str, account: TestAccount, module: Callable[[str, str, str], Any]
) -> None:
    module("django", "waybill.py", "recipe_django")

    def send() -> int:
        django_mail.send_mail("Plain", "It works.", None, ["Ann <ann@people.test>"], html_message="<p>It works.</p>")
        rich = django_mail.EmailMultiAlternatives(
            "Rich", "Text", to=["ann@people.test"], cc=["bob@people.test"], bcc=["cleo@people.test"],
            reply_to=["help@people.test", "x@people.test"], headers={"X-Order": "4711"},
        )  # fmt: skip
        rich.attach("receipt.txt", "Total: 9.50", "text/plain")
        rich.attach(inline_logo())
        rich.waybill = {"tags": ["receipt"], "metadata": {"order": "4711"}, "idempotencyKey": "receipt-4711"}
        with django_connection() as connection:
            return int(connection.send_messages([rich, rich]))

    with override_settings(
        **django_backend("recipe_django.EmailBackend"), DEFAULT_FROM_EMAIL=account.sender, WAYBILL_URL=api_url,
        WAYBILL_API_KEY=account.token,
    ):  # fmt: skip
        sent = await asyncio.to_thread(send)

    plain, rich = await messages(api, account)
    assert sent == 2  # the second has the key of the first
    assert (plain["subject"], plain["text"].strip(), plain["html"].strip()) == (
        "Plain",
        "It works.",
        "<p>It works.</p>",
    )
    assert (rich["cc"], rich["bcc"]) == (["bob@people.test"], ["cleo@people.test"])
    assert (rich["tags"], rich["metadata"]) == (["receipt"], {"order": "4711"})
    assert [one["filename"] for one in rich["attachments"]] == ["receipt.txt", "logo.gif"]
    raw = (await api.get(f"/v1/messages/{rich['id']}/raw", account.token)).body
    assert b"X-Order: 4711" in raw
    assert b"Reply-To: help@people.test, x@people.test" in raw
    assert b"Content-ID: <logo>" in raw


async def test_a_refusal_is_an_exception_in_django_unless_it_is_to_fail_silently(
    api_url: str, account: TestAccount, module: Callable[[str, str, str], Any]
) -> None:
    backend = module("django", "waybill.py", "recipe_django_refused")
    to = [["ann@people.test"], ["nobody"]]

    def send(*, silently: bool) -> int:
        mails = [django_mail.EmailMessage("Hello", "Text", None, one) for one in to]
        return int(django_connection(silently=silently).send_messages(mails))

    with override_settings(
        **django_backend("recipe_django_refused.EmailBackend"), DEFAULT_FROM_EMAIL=account.sender, WAYBILL_URL=api_url,
        WAYBILL_API_KEY=account.token,
    ):  # fmt: skip
        assert await asyncio.to_thread(send, silently=True) == 1
        with pytest.raises(backend.WaybillError, match="invalid_address"):
            await asyncio.to_thread(send, silently=False)


async def test_the_recipe_repeats_what_was_not_accepted_with_the_same_key(
    account: TestAccount, module: Callable[[str, str, str], Any]
) -> None:
    module("django", "waybill.py", "recipe_django_repeats")
    result = {"data": [{"index": 0, "id": "msg_1", "status": "queued"}], "accepted": 1, "duplicates": 0, "refused": 0}
    async with Receiver() as receiver:
        url = f"http://127.0.0.1:{receiver.port}"
        receiver.headers = {"Retry-After": "0"}
        receiver.body = json.dumps({**result, "id": "msg_1"}).encode()
        receiver.answer = lambda _: 503 if len(receiver.got) % 2 else 200
        with override_settings(
            **django_backend("recipe_django_repeats.EmailBackend"), WAYBILL_URL=url, WAYBILL_API_KEY="svc_live_x"
        ):
            sent = await asyncio.to_thread(django_mail.send_mail, "Hello", "Text", "a@b.test", ["c@d.test"])

    assert sent == 1
    bodies = [got.body for got in receiver.got]
    assert bodies[0] == bodies[1]
    assert len(bodies) == 2


async def test_the_page_of_a_proxy_is_an_error_in_django_unless_it_is_to_fail_silently(
    account: TestAccount, module: Callable[[str, str, str], Any]
) -> None:
    module("django", "waybill.py", "recipe_django_proxy")

    def send(*, silently: bool) -> int:
        mail = django_mail.EmailMessage("Hello", "Text", "a@b.test", ["c@d.test"])
        return int(django_connection(silently=silently).send_messages([mail]))

    async with Receiver() as receiver:
        receiver.headers = {"Content-Type": "text/html"}
        receiver.body = b"<h1>502 Bad Gateway</h1>"
        receiver.status = 502
        with override_settings(
            **django_backend("recipe_django_proxy.EmailBackend"), WAYBILL_URL=f"http://127.0.0.1:{receiver.port}",
            WAYBILL_API_KEY="svc_live_x",
        ):  # fmt: skip
            assert await asyncio.to_thread(send, silently=True) == 0
            with pytest.raises(httpx.HTTPStatusError, match="502"):
                await asyncio.to_thread(send, silently=False)


async def test_flask_sends_and_checks_signatures(
    api: Api,
    api_url: str,
    account: TestAccount,
    module: Callable[[str, str, str], Any],
    monkeypatch: pytest.MonkeyPatch,
    waybill_client: Any,
) -> None:
    for name, value in {"URL": api_url, "API_KEY": account.token, "SIGNING_SECRET": "whsec_x"}.items():
        monkeypatch.setenv(f"WAYBILL_{name}", value)
    recipe = module("flask", "app.py", "recipe_flask_app")
    app: flask.Flask = recipe.app
    client = app.test_client()
    body, now = b'{"id":"evt_1","seq":1,"type":"delivered","data":{"messageId":null}}', int(time.time())

    def post(signed: str) -> int:
        headers = {"Service-Signature": signed, "Content-Type": "application/json"}
        return client.post("/hooks/waybill", data=body, headers=headers).status_code

    assert post(signature("whsec_x", body, now)) == 204
    both = signature("whsec_y", body, now), signature("whsec_x", body, now)
    former = dict(zip(("Service-Signature", "Service-Signature-Previous"), both, strict=True))
    assert client.post("/hooks/waybill", data=body, headers=former).status_code == 204  # during a rotation
    assert post(signature("whsec_y", body, now)) == 400
    assert post(signature("whsec_x", body, now - 400)) == 400
    assert post("") == 400

    app.testing = True
    with pytest.raises(waybill_client.DomainNotVerifiedError):
        await asyncio.to_thread(client.post, "/orders/4711/receipt", data={"email": "ann@people.test"})
    text = printed("flask", "app.py").replace("hello@hello.test", account.sender)
    assert account.sender in text
    namespace: dict[str, Any] = {"__name__": "recipe_flask_own"}
    exec(compile(text, "app.py", "exec"), namespace)
    sender = namespace["app"].test_client()
    answers = [
        (await asyncio.to_thread(sender.post, "/orders/4711/receipt", data={"email": "ann@people.test"})).get_json()
        for _ in range(2)
    ]
    unreadable = await asyncio.to_thread(sender.post, "/orders/4712/receipt", data={"email": "nobody"})
    for one in (recipe.client, namespace["client"]):
        one.close()
    assert unreadable.status_code == 422
    [message] = await messages(api, account)
    assert answers == [{"message": message["id"]}] * 2


async def test_a_sign_in_with_a_code_succeeds_only_with_the_right_one(
    api: Api, api_url: str, account: TestAccount, pool: asyncpg.Pool, monkeypatch: pytest.MonkeyPatch,
    waybill_client: Any,
) -> None:  # fmt: skip
    for name, value in {"WAYBILL_URL": api_url, "WAYBILL_API_KEY": account.token, "SECRET_KEY": "s3cret"}.items():
        monkeypatch.setenv(name, value)
    text = printed("verifications", "app.py").replace("codes@hello.test", account.sender)
    namespace: dict[str, Any] = {"__name__": "recipe_sign_in"}
    exec(compile(text, "app.py", "exec"), namespace)
    browser = namespace["app"].test_client()

    async def post(path: str, **form: str) -> Any:
        return await asyncio.to_thread(browser.post, path, data=form)

    await api.post("/v1/suppressions", account.token, {"address": "gone@people.test"})
    refused = [(await post("/sign-in", email=one)).status_code for one in ("nobody", "gone@people.test")]
    started = await post("/sign-in", email="ann@people.test")
    [message] = (await api.get("/v1/messages", account.token)).json["data"]
    code = await code_of(pool, message["id"])
    wrong = await post("/sign-in/code", code="0" * len(code) if code != "0" * len(code) else "1" * len(code))
    right = await post("/sign-in/code", code=code)
    with browser.session_transaction() as kept:
        user = kept.get("user")
        kept["email"] = "ann@people.test"  # as in a second window, which checks the code again
    over = await post("/sign-in/code", code=code)
    namespace["client"].close()

    assert refused == [422, 422]
    assert (started.status_code, started.location) == (302, "/sign-in/code")
    assert (wrong.status_code, wrong.text) == (422, "Wrong code. 4 attempts left.")
    assert (right.status_code, right.location, user) == (302, "/", "ann@people.test")
    assert (over.status_code, over.location) == (302, "/sign-in")
