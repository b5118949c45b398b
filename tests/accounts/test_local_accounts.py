"""`POST /v1/local/accounts`: an account for each test of an application, in local mode only."""

from pathlib import Path

import aiohttp
from msgspec import structs

from engine.base.settings import Settings
from tests.harness.accounts import TestAccount
from tests.harness.api import Api, serving


async def test_a_new_account_sends_from_its_domain_and_shares_nothing(api: Api, account: TestAccount) -> None:
    opened = [(await api.post("/v1/local/accounts", account.token, {"name": "A test"})) for _ in range(2)]
    assert [one.status for one in opened] == [201, 201]
    first, second = (one.json for one in opened)
    assert len({first["accountId"], second["accountId"], account.public_id}) == 3
    message = {"from": f"hello@{first['domain']}", "to": ["ann@example.com"], "subject": "Hi", "text": "Hi"}

    sent = await api.post("/v1/emails", first["apiKey"], message)

    assert sent.status == 202
    assert (await api.get(f"/v1/messages/{sent.json['id']}", first["apiKey"])).status == 200
    assert (await api.get(f"/v1/messages/{sent.json['id']}", second["apiKey"])).status == 404
    assert (await api.post("/v1/emails", second["apiKey"], message)).status == 403


async def test_live_mode_opens_no_accounts_so(
    settings: Settings, account: TestAccount, http: aiohttp.ClientSession, tmp_path: Path
) -> None:
    live = structs.replace(settings, delivery="live", tls_cert=None, state=tmp_path)
    with serving(live, tmp_path / "api.log") as url:
        answer = await Api(url, http).post("/v1/local/accounts", account.token, {})
    assert (answer.status, answer.error["type"]) == (404, "not_found")
    assert "WAYBILL_DELIVERY is live" in answer.error["message"]
