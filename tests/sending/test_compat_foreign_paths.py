"""Calls of other services' clients that are not offered answer in their form, with what to use instead."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import asyncpg
import pytest
import resend
from postmarker.core import PostmarkClient  # type: ignore[import-untyped]
from postmarker.exceptions import ClientError  # type: ignore[import-untyped]
from resend.exceptions import ResendError

from tests.harness.accounts import TestAccount, make_account
from tests.harness.api import Api
from tests.harness.foreign_clients import called, resend_pointing_at


@pytest.fixture
async def account(pool: asyncpg.Pool) -> TestAccount:
    return await make_account(pool)


@pytest.fixture(autouse=True)
def resend_points_here(api: Api, account: TestAccount) -> Iterator[None]:
    with resend_pointing_at(api, account.token):
        yield


async def test_other_calls_of_resends_client_say_what_to_use(api: Api) -> None:
    calls: list[tuple[Callable[[], Any], int, str]] = [
        (partial(resend.Contacts.list, audience_id="x"), 404, "/v1/lists"),
        (partial(resend.Domains.remove, "dom_x"), 405, "/v1/domains"),
        (partial(resend.Domains.verify, "dom_x"), 404, "/v1/domains"),
        (partial(resend.ApiKeys.list), 404, "the console"),
        (partial(resend.Webhooks.list), 404, "/v1/webhooks"),
        (partial(resend.Emails.Attachments.list, "msg_x"), 404, "/v1/messages/{id}/attachments"),
        (partial(resend.Broadcasts.list), 404, "/v1/broadcasts"),
    ]
    for call, status, instead in calls:
        with pytest.raises(ResendError) as raised:
            await called(call)
        assert (raised.value.code, raised.value.error_type) == (
            status, "not_found" if status == 404 else "method_not_allowed",
        )  # fmt: skip
        assert "Waybill does not offer Resend's" in str(raised.value)
        assert instead in str(raised.value)
        assert f"{api.base_url}/docs/migrate-from-resend" in str(raised.value)


async def test_other_calls_of_postmarks_client_say_what_to_use(api: Api, account: TestAccount) -> None:
    client = PostmarkClient(server_token=account.token, account_token="x", root_api_url=api.base_url)
    calls: list[tuple[Callable[[], Any], str]] = [
        (client.server.get, "/v1/me"),
        (client.templates.all, "/v1/templates"),
        (client.stats.overview, "/v1/stats/messages"),
        (client.messages.inbound.all, "/v1/inbound/messages"),
        (client.messages.outbound.opens.all, "does not track opens"),
        (lambda: client.bounces.deliverystats, "/v1/bounces/classes"),
        (client.domains.all, "/v1/domains"),
    ]
    for call, instead in calls:
        with pytest.raises(ClientError) as raised:
            await called(call)
        assert "Waybill does not offer Postmark's GET" in str(raised.value)
        assert instead in str(raised.value)
        assert "/docs/migrate-from-postmark" in str(raised.value)
    wrong = await api.delete("/v1/compat/postmark/bounces", account.token)
    assert (wrong.status, wrong.json["ErrorCode"], wrong.error["type"]) == (405, 300, "method_not_allowed")
    assert "GET" in wrong.headers["allow"]


async def test_paths_of_sendgrid_and_mailgun_name_the_guide(api: Api) -> None:
    sendgrid = await api.post("/v3/mail/send", "SG.x", {"personalizations": []})
    assert sendgrid.status == 404
    assert "/docs/migrate-from-sendgrid" in sendgrid.json["errors"][0]["message"]
    for path, headers in (
        ("/v3/shop.example.com/messages", {}),
        ("/v3/domains", {"Authorization": "Basic YXBpOng="}),
        ("/v4/domains", {"Authorization": "Basic YXBpOng="}),
    ):
        mailgun = await api.post(path, json={}, headers=headers)
        assert mailgun.status == 404, path
        assert "/docs/migrate-from-mailgun" in mailgun.json["message"]
        assert mailgun.error["type"] == "not_found"


async def test_resends_paths_without_the_base_url_say_so(api: Api) -> None:
    lost = await api.post("/emails", "re_123", {})
    assert (lost.status, lost.json["name"]) == (404, "not_found")
    assert "/v1/compat/resend" in lost.json["message"]


async def test_other_unknown_paths_answer_as_ever(api: Api) -> None:
    unknown = await api.get("/v1/compat/mailchimp/emails")
    assert unknown.json == {"error": unknown.error}
    assert unknown.error["message"] == "No such path. Check it in the API reference."
    assert (await api.get("/templates")).error["message"] == "No such path. Check it in the API reference."
