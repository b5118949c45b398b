"""Send over the API, and read how much an account sent."""

from tests.harness.accounts import TestAccount
from tests.harness.api import Answer, Api


async def send(api: Api, account: TestAccount, **fields: object) -> Answer:
    """Send with `fields` in place of the account's own."""
    return await api.post("/v1/emails", account.token, account.email(**fields))


async def sent_id(api: Api, account: TestAccount, **fields: object) -> str:
    """Accept one message; its id."""
    answer = await api.post("/v1/emails", account.token, account.email(**fields))
    assert answer.status == 202, answer
    return str(answer.json["id"])


async def sent_today(api: Api, account: TestAccount) -> int:
    """Return what counts toward the daily cap."""
    return int((await api.get("/v1/me", account.token)).json["sending"]["sentToday"])
