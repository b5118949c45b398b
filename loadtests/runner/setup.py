"""Prepare a separate service for a load test: accounts with verified domains, keys for tails, webhook endpoints."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

from msgspec import Struct

from engine.events.tails.store import MAX_TAILS as TAILS_EACH
from engine.events.webhooks import service as webhooks_service
from loadtests.bench.service import BenchService
from loadtests.bench.webhook_arrivals import WebhookArrivals, receiving
from loadtests.kit.accounts import ApiAccess
from loadtests.runner.catalogue import Scenario
from loadtests.scenarios.load_plan import LoadPlan, LoadSender
from ops import admin


class Hooks(Struct, frozen=True):
    """The posts that arrived, and the endpoints that never answer."""

    arrivals: WebhookArrivals
    hanging: list[UUID]


async def make_plan(scenario: Scenario, service: BenchService, accounts: list[ApiAccess], **limits: object) -> LoadPlan:
    """Create the scenario's stream on every account; return the plan that Locust reads, with its `limits`."""
    if scenario.stream is not None:
        body = {"id": scenario.stream, "name": scenario.stream.capitalize()}
        for one in accounts:
            await asyncio.to_thread(admin.call_api, service.base_url, "POST", "/v1/streams", one.key, body)
    return LoadPlan(
        url=service.base_url, senders=[LoadSender(one.key, one.sender) for one in accounts],
        readers=[accounts[number // TAILS_EACH].key for number in range(scenario.readers)], cool_s=scenario.cool_s,
        smtp=(service.settings.submission_host, service.settings.submission_tls_port) if scenario.relay else None,
        **limits,  # type: ignore[arg-type]
    )  # fmt: skip


@contextmanager
def hooked(scenario: Scenario) -> Iterator[Hooks | None]:
    """Run the webhook receiver; yields None if the scenario has no endpoints."""
    if not scenario.hooks:
        yield None
        return
    with receiving() as arrivals:
        yield Hooks(arrivals, [])


async def register(scenario: Scenario, service: BenchService, accounts: list[ApiAccess], hooks: Hooks) -> None:
    """Register answering endpoints on every account, and hanging ones in turn."""
    owners = [one.account_id for one in accounts]

    async def made(account: UUID, url: str) -> UUID:
        pepper = service.settings.pepper
        return (await webhooks_service.create(service.pool, account, url=url, event_types=(), pepper=pepper)).row.id

    for account in owners * scenario.hooks:
        await made(account, hooks.arrivals.quick_url)
    for number in range(scenario.hanging):
        hooks.hanging.append(await made(owners[number % len(owners)], hooks.arrivals.never_url))
