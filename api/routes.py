"""The routes of the API: the operations of all areas, the public pages, and the files of console, docs and clients."""

import functools
from importlib import import_module
from typing import Annotated, Final

import falcon
import falcon.asgi
import structlog
from msgspec import Meta, Struct

from api.areas.billing import payprov_simulator
from api.areas.cells import internal
from api.areas.compat import forms as compat
from api.areas.contacts import confirmation_page
from api.areas.delivery_certificates import key_set
from api.areas.images import image_file
from api.areas.instance import security_txt
from api.areas.mta_sts import policy_host
from api.areas.status_page import resources as status_page
from api.areas.unsubscribes import resources as unsubscribes
from api.areas.verifications import link, public
from api.areas.webhooks import event_schemas
from api.console import assets
from api.docs import resources as docs
from api.http import dispatch, openapi, openapi_parts, readiness, visiting_operator
from api.http.admission import RequestContext
from api.http.body import BodyMemory
from api.http.operation import Access, Area, Call, Operation, Raw
from api.http.replica_reads import ReplicaReads
from api.http.services import ApiServices
from api.mcp import endpoint as mcp_endpoint
from api.sdk import resources as sdk
from engine.base.settings import Settings
from engine.base.version import version
from engine.cells import overview, whose
from engine.codes.verifications.send import LINK_PATH, LOGO_PATH
from engine.receiving.certificates.renewal import CHALLENGE_PATH
from engine.receiving.mta_sts.rules import POLICY_PATH
from engine.sending.images.types import PATH as IMAGE_PATH
from engine.store import metrics

MAX_TAGS: Final = 50
_log = structlog.get_logger("api")

App = falcon.asgi.App[falcon.asgi.Request, falcon.asgi.Response]

# The modules of `api.areas` with operations, in the order of the OpenAPI document.
MODULES: Final = """
    emails.resources emails.raw emails.resend emails.agent_sends compat.resources compat.resend_reads
    compat.postmark_reads messages.resources messages.export delivery_certificates.resources tails.resources
    statistics.resources analytics.resources receivers.resources templates.resources templates.layouts
    templates.starters images.resources streams.resources suppressions.resources bounces.resources domains.resources
    webhooks.resources webhooks.deliveries
    contacts.resources contacts.files contacts.lists contacts.opt_outs contacts.segments broadcasts.resources
    inbound_addresses.resources inbound_messages.resources inbound_routes.resources inbound_domains.resources
    mta_sts.resources verifications.resources address_checks.resources alerts.resources notices.resources
    views.resources audit.resources api_keys.resources account.resources billing.resources auth.resources
    identity.resources email_verification.resources second_factor.resources passkeys.resources sub_accounts.resources
    account_deletion.resources erasures.resources team.resources leads.resources request_log.resources
    instance.resources local_sink.resources local_accounts.resources local_clock.resources operator.resources
""".split()  # noqa: SIM905 - a list of strings would be three times as long


@functools.cache
def all_operations() -> tuple[Operation, ...]:
    """Return every operation of the public API, including the OpenAPI document."""
    found: list[Operation] = []
    for name in MODULES:
        found += import_module(f"api.areas.{name}").OPERATIONS
    return *found, Operation("GET", "/v1/openapi.json", _describe, "This description", _ANYONE)


@functools.lru_cache(maxsize=1)
def client_document(settings: Settings) -> bytes:
    """Return the OpenAPI document, from which the reference and the clients are made."""
    return openapi.document(all_operations(), settings, webhooks=event_schemas.webhooks())


def add_routes(app: App, services: ApiServices) -> None:
    """Add all routes to the application."""
    settings = services.settings
    _add_operations(app, services)
    assets.add_routes(app, settings.public_url)
    docs.add_routes(app, functools.partial(client_document, settings), settings)
    sdk.add_routes(app, functools.partial(client_document, settings), version(), settings.public_url)
    payprov_simulator.add_routes(app, services)
    app.add_route(LINK_PATH + "{token}", link.ConfirmationLink(services, _count))
    app.add_route(LOGO_PATH + "{token}", public.LogoFile(services.pool))
    app.add_route(IMAGE_PATH + "{name}", image_file.ImageFile(services.pool))
    app.add_route(POLICY_PATH, policy_host.PolicyHost(services.pool, settings))
    app.add_route(CHALLENGE_PATH + "{token}", policy_host.AcmeChallenge(services.pool))
    app.add_route(policy_host.TLS_ALLOWED_PATH, policy_host.TlsAllowed(services.pool, settings))
    app.add_route(confirmation_page.PATH, confirmation_page.ConfirmationResource(services, _count))
    app.add_route(unsubscribes.PATH, unsubscribes.UnsubscribeResource(services, _count))
    key_set.add_routes(app, services.pool, settings.pepper)
    security_txt.add_routes(app, settings)
    status_page.add_routes(app, services.pool, settings)
    if settings.directory_url is not None:
        app.add_route(whose.PATH, internal.Whose(services))
        app.add_route(overview.PATH, internal.OwnFigures(services))
        app.add_route(visiting_operator.VOUCH_PATH, internal.VouchForOperator(services))
    app.add_route("/healthz", Health())
    app.add_route("/readyz", ReadinessEndpoint(services))


def _add_operations(app: App, services: ApiServices) -> None:
    context = RequestContext(
        settings=services.settings,
        services=services,
        keys=services.keys,
        sessions=services.sessions,
        limits=services.limits,
        memory=BodyMemory(services.settings),
        suspects={},
        requests=services.requests,
        replica_reads=ReplicaReads.of(services),
        on_answer=_count,
    )
    by_path: dict[str, list[Operation]] = {}
    for operation in all_operations():
        by_path.setdefault(operation.path, []).append(operation)
    for path, operations in by_path.items():
        app.add_route(path, dispatch.RoutedOperation(context, operations))
    app.add_route(mcp_endpoint.PATH, dispatch.RoutedOperation(context, [mcp_endpoint.operation(app)]))
    for path, operations in by_path.items():
        for alias in compat.aliases(path):
            app.add_route(alias, dispatch.RoutedOperation(context, operations))


def _count(operation: str, status: int, refused: str | None) -> None:
    metrics.TALLY.add(metrics.REQUESTS, operation, str(status))
    _log.debug("request answered", operation=operation, status=status, refused=refused)
    if refused is not None:
        metrics.TALLY.add(metrics.REFUSED, refused)


class DescriptionQuery(Struct, forbid_unknown_fields=True, kw_only=True):
    """The part of the description to return."""

    tag: Annotated[
        list[str],
        Meta(max_length=MAX_TAGS, description="Repeatable: the operations of these subjects, such as `Emails`, alone"),
    ] = []


async def _describe(call: Call, query: DescriptionQuery) -> Raw:
    whole = client_document(call.settings)
    return Raw(_part(whole, frozenset(query.tag)) if query.tag else whole, "application/json")


@functools.lru_cache(maxsize=64)  # of 1 MB at most; most parts have a tenth of it
def _part(whole: bytes, tags: frozenset[str]) -> bytes:
    return openapi_parts.part(whole, tags)


_ANYONE: Final = Area("Other", access=Access.NONE)


class Health:
    """`/healthz`: the process answers."""

    async def on_get(self, request: falcon.asgi.Request, response: falcon.asgi.Response) -> None:  # noqa: ARG002
        """Answer 200 while the event loop runs."""
        response.media = {"status": "ok"}

    on_head = on_get  # many load balancers and monitors send HEAD


class ReadinessEndpoint:
    """`/readyz`: the state of every dependency; 503 when mail can't be accepted."""

    def __init__(self, services: ApiServices) -> None:
        self._services = services

    async def on_get(self, request: falcon.asgi.Request, response: falcon.asgi.Response) -> None:  # noqa: ARG002
        """Answer 200 with all checks, or 503 if a check that acceptance needs has failed."""
        found = await readiness.check(self._services)
        response.status = falcon.HTTP_200 if found.is_ready else falcon.HTTP_503
        response.media = {"status": found.status, "checks": found.checks}

    on_head = on_get
