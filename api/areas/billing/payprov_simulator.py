"""Play the payment provider `payprov` in local mode, so that a purchase can be clicked through on one machine.

The checkout page and the request for renewals are served by the API itself under `/payprov`; nobody pays. Events take
the way of a real provider's: signed, verified, recorded, applied.
"""

import html
from typing import Any, Final
from urllib.parse import parse_qsl

import falcon.asgi
import orjson

from api.http import body as bodies
from api.http import stream
from api.http.decode import query_text
from api.http.services import ApiServices
from engine.accounts.billing import payment_events, store
from engine.accounts.billing.configuration import is_simulated, payprov_secrets
from engine.accounts.billing.money import formatted
from engine.accounts.billing.providers import signatures
from engine.accounts.billing.providers.payprov import signed_order
from engine.accounts.billing.providers.protocol import BadSignature
from engine.base import clock, ids
from engine.base.ids import Kind
from engine.base.settings import Settings

PAGE: Final = "/payprov/checkout"
CHARGES: Final = "/payprov/charges"
MAX_BODY: Final = 4_096
_REFUSES_RENEWALS: Final = "card-that-refuses-renewals"
_POLICY: Final = (
    "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
_STYLE: Final = (
    ":root{color-scheme:light dark;font:16px/1.5 system-ui,sans-serif}"
    "body{max-width:32rem;margin:4rem auto;padding:0 1rem}"
    "button{font:inherit;padding:.5rem 1rem;margin:.25rem .5rem .25rem 0}"
)
_BUTTONS: Final = (
    ("pay", "Pay"),
    ("pay-once", "Pay, and refuse renewals"),
    ("decline", "Decline"),
)


def add_routes(app: falcon.asgi.App[Any, Any], services: ApiServices) -> None:
    """Add the simulator's pages if this installation uses it."""
    if is_simulated(services.settings):
        app.add_route(PAGE, SimulatedCheckout(services))
        app.add_route(CHARGES, SimulatedCharges(services))


class SimulatedCheckout:
    """The checkout page: shows the order, and reports what the visitor chooses."""

    def __init__(self, services: ApiServices) -> None:
        self._services = services
        self._memory = bodies.BodyMemory(services.settings)

    async def on_get(self, request: falcon.asgi.Request, response: falcon.asgi.Response) -> None:
        """Show the order with a button for each outcome."""
        order = await self._order(request)
        if order is None:
            _show(response, 404, "No such checkout", "<p>Open the checkout again.</p>")
            return
        buttons = "".join(f'<button name="choice" value="{name}">{words}</button>' for name, words in _BUTTONS)
        price = formatted(int(order["amount"]), order["currency"])
        _show(
            response,
            200,
            "Simulated payment",
            f"<p>{html.escape(order['description'])}: <strong>{html.escape(price)}</strong></p>"
            "<p>This page belongs to local mode: nobody pays, and no card is asked for.</p>"
            f'<form method="post">{buttons}</form>',
        )

    async def on_post(self, request: falcon.asgi.Request, response: falcon.asgi.Response) -> None:
        """Send the event for the choice, as a provider would."""
        order = await self._order(request)
        if order is None:
            _show(response, 404, "No such checkout", "<p>Open the checkout again.</p>")
            return
        choice = dict(
            parse_qsl((await _body(request, self._memory, self._services.settings)).decode("utf-8", "replace"))
        ).get("choice")
        declined = choice == "decline"
        data: dict[str, object] = {
            "checkout": order["id"],
            "amount": int(order["amount"]),
            "currency": order["currency"],
            "reference": _REFUSES_RENEWALS if choice == "pay-once" else "card",
        }
        effect = await _report(self._services, "checkout.failed" if declined else "checkout.succeeded", data)
        words = "The payment was declined." if declined else "The payment was made."
        _show(
            response,
            200,
            words,
            f"<p>Effect: {html.escape(effect)}. You can close this page, or go back to "
            '<a href="../console/billing">billing</a>.</p>',
        )

    async def _order(self, request: falcon.asgi.Request) -> dict[str, str] | None:
        """Return the order in the query, None unless it is signed and still known."""
        order = dict(parse_qsl(query_text(request)))
        signature = order.pop("signature", None)
        try:
            row = await store.CHECKOUT.first(self._services.pool, ids.parse_id(Kind.CHECKOUT, order.get("id", "")))
            at = clock.now() if row is None else row.created_at
            signatures.verify(payprov_secrets(self._services.settings), signature, signed_order(order), at)
        except (ids.WrongId, BadSignature):
            return None
        return None if row is None else order


class SimulatedCharges:
    """The request to charge a renewal: answered at once, the outcome follows as an event."""

    def __init__(self, services: ApiServices) -> None:
        self._services = services
        self._memory = bodies.BodyMemory(services.settings)

    async def on_post(self, request: falcon.asgi.Request, response: falcon.asgi.Response) -> None:
        """Verify the signature and report the payment, or its failure for a card that refuses renewals."""
        content = await _body(request, self._memory, self._services.settings)
        try:
            secrets = payprov_secrets(self._services.settings)
            signatures.verify(secrets, request.get_header("Payprov-Signature"), content, clock.machine_now())
        except BadSignature:
            response.status = falcon.HTTP_401
            return
        order = orjson.loads(content)
        refuses = order.get("reference") == _REFUSES_RENEWALS
        data = {name: order[name] for name in ("account", "periodStart", "amount", "currency", "reference")}
        await _report(self._services, "payment.failed" if refuses else "payment.succeeded", data)
        response.status = falcon.HTTP_202


async def _report(services: ApiServices, kind: str, data: dict[str, object]) -> str:
    """Sign an event, verify it like one that came by HTTP, and apply it."""
    at = clock.now()
    message = {"id": f"sim_{ids.uuid7().hex}", "type": kind, "createdAt": clock.iso(at), "data": data}
    content = orjson.dumps(message)
    provider = services.billing.providers["payprov"]
    header = signatures.sign(payprov_secrets(services.settings)[0], content, at)
    event = provider.read_event({"payprov-signature": header}, content, at)
    return await payment_events.apply(services.pool, provider, event, services.billing, at=at)


async def _body(request: falcon.asgi.Request, memory: bodies.BodyMemory, settings: Settings) -> bytes:
    reservation = memory.anonymous.open("payprov simulator")
    try:
        connection = stream.connection_of(request.scope)
        return await bodies.read_body(connection, request.content_length, MAX_BODY, settings, reservation)
    finally:
        reservation.release()


def _show(response: falcon.asgi.Response, status: int, title: str, content: str) -> None:
    response.status = falcon.code_to_http_status(status)
    response.content_type = "text/html; charset=utf-8"
    for name, value in (
        ("Content-Security-Policy", _POLICY), ("X-Content-Type-Options", "nosniff"), ("Cache-Control", "no-store"),
        ("Referrer-Policy", "no-referrer"),
    ):  # fmt: skip
        response.set_header(name, value)
    response.text = (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style><h1>{html.escape(title)}</h1>{content}</html>"
    )
