"""The built-in payment provider, as tests play it: signed events about checkouts and renewals."""

from datetime import datetime
from typing import Any

import orjson

from engine.accounts.billing.configuration import payprov_secrets
from engine.accounts.billing.providers import signatures
from engine.base import clock, ids
from engine.base.settings import Settings
from tests.harness.api import Answer, Api

WEBHOOK = "/v1/billing/payprov/webhook"


async def report(
    api: Api,
    settings: Settings,
    kind: str,
    data: dict[str, Any],
    *,
    event: str | None = None,
    path: str = WEBHOOK,
    signed_at: datetime | None = None,
    secret: str | None = None,
) -> Answer:
    """Send an event, signed with the installation's secret unless another one is given."""
    at = clock.now()
    message = {"id": event or ids.uuid7().hex, "type": kind, "createdAt": clock.iso(at), "data": data}
    body = orjson.dumps(message)
    header = signatures.sign(secret or payprov_secrets(settings)[0], body, signed_at or at)
    return await api.post(path, body=body, headers={"Payprov-Signature": header})


async def pay(api: Api, settings: Settings, checkout: dict[str, Any], **more: Any) -> Answer:
    """Report that a checkout was paid."""
    data = {name: checkout[name] for name in ("amount", "currency")} | {"checkout": checkout["id"]}
    return await report(api, settings, "checkout.succeeded", data, **more)
