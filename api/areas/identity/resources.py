"""Signing in with an identity provider, and the identities of a person."""

from api.areas.identity.schemas import (
    Callback,
    Exchange,
    Identity,
    IdentityList,
    OneTap,
    OneTapNonce,
    ShowCode,
    Start,
)
from api.http import auth
from api.http.body_limits import MAX_ANONYMOUS_BYTES
from api.http.cookies import http_only, session_cookie
from api.http.operation import Access, Area, Call, Operation, Raw
from api.http.paging import Page
from api.http.session import Session, renew_session, session_reply
from engine.base import clock, ids
from engine.base.errors import ErrorType, Refusal
from engine.cells import claims
from engine.cells.directory import ClaimedElsewhere
from engine.people.identity import links as identity_links
from engine.people.identity import rules
from engine.people.identity import sign_in as identity
from engine.people.identity.types import IdentityRow

DEADLINE_S = 20.0  # three requests to the provider, each with its own timeout
_NO_STORE = (("Cache-Control", "no-store"), ("Referrer-Policy", "no-referrer"))


async def get_start(call: Call, query: Start) -> Raw:
    """Redirect the browser to the provider, and set a cookie that ties the sign-in to this browser."""
    identity.provider_of(call.services)
    browser = _browser(call)
    location = await identity.start(
        call.services,
        browser,
        return_to=query.return_to,
        app_redirect=query.app_redirect,
        challenge=query.verifier_challenge,
    )
    call.cookies = (_browser_cookie(call, browser),)
    return _redirect(location)


async def get_callback(call: Call, query: Callback) -> Raw:
    """Finish the sign-in of the provider, and redirect to the console, its sign-in page, or the app."""
    came = identity.ProviderReturn(query.state, query.code, query.error, query.iss)
    browser = _known_browser(call)
    landing = await identity.handle_return(call.services, came, browser, auth.device(call.request))
    if browser is not None and rules.browser_digest(browser) is not None:  # a ticket outlives the state by five minutes
        call.cookies = (_browser_cookie(call, browser),)
    if landing.cell is not None:
        call.cookies = (*call.cookies, _cell_cookie(call, landing.cell))
    if landing.session is not None:
        call.cookies = (*call.cookies, session_cookie(call.settings, landing.session.secret))
    return _redirect(landing.location)


async def get_nonce(call: Call) -> OneTapNonce:
    """Return a nonce for the provider's one-tap button on a page of this browser."""
    identity.provider_of(call.services)
    browser = _browser(call)
    made = await identity.give_nonce(call.services, browser)
    call.cookies = (_browser_cookie(call, browser),)
    call.headers = _NO_STORE
    return OneTapNonce(made.nonce, made.client_id, made.issuer, made.name, made.expires_in_s)


async def post_one_tap(call: Call, body: OneTap) -> Session:
    """Open a session for the ID token that the one-tap button gave to the page."""
    device = auth.device(call.request)
    try:
        made = await identity.one_tap(call.services, body.credential, _known_browser(call), device)
    except ClaimedElsewhere as elsewhere:
        call.cookies = (_cell_cookie(call, elsewhere.claim.cell),)
        raise Refusal(ErrorType.INVALID_CREDENTIALS, "Sign in once more: another cell has your account.") from None
    return await session_reply(call, made)


async def post_totp(call: Call, body: ShowCode) -> Session:
    """Open a session for the ticket of a sign-in that asked for a code, and that code."""
    made = await identity.show_code(
        call.services, body.ticket, body.code, _known_browser(call), auth.device(call.request)
    )
    return await session_reply(call, made)


async def post_exchange(call: Call, body: Exchange) -> Session:
    """Open a session for the code of an app's redirect and the app's verifier."""
    made = await identity.exchange(call.services, body.code, body.verifier, auth.device(call.request))
    return await session_reply(call, made)


async def list_identities(call: Call, page: Page) -> IdentityList:
    """Return a page of the identities at the sign-in provider that are linked to the person."""
    issuer = identity.provider_of(call.services).config.issuer
    held = await identity_links.list_identities(call.services.pool, call.person.user_id)

    def shown(row: IdentityRow) -> Identity:
        return Identity(
            id=ids.format_id(ids.Kind.IDENTITY, row.id),
            issuer=row.issuer,
            name=rules.shown_name(call.settings.idp_name if row.issuer == issuer else None, row.issuer),
            current=row.issuer == issuer,
            created_at=clock.iso(row.created_at),
            last_used_at=clock.iso(row.used_at),
        )

    return IdentityList(*page.among(held, shown))


async def delete_identity(call: Call) -> None:
    """Remove an identity. Other sessions end; this one gets a new cookie and CSRF token."""
    identity.provider_of(call.services)
    renew_session(call, await identity_links.unlink(call.services, call.person, call.id))


def _redirect(location: str) -> Raw:
    return Raw(b"", "text/plain", headers=(("Location", location), *_NO_STORE))


def _known_browser(call: Call) -> str | None:
    values = call.request.get_cookie_values(rules.COOKIE)
    return values[0] if values else None


def _browser(call: Call) -> str:
    """Return the browser's secret from its cookie, or a new one; windows of one browser share it."""
    known = _known_browser(call)
    return known if known is not None and rules.browser_digest(known) is not None else rules.new_browser()


def _cell_cookie(call: Call, cell: str) -> str:
    return http_only(call.settings, claims.HINT_COOKIE, cell, max_age_s=rules.COOKIE_S)


def _browser_cookie(call: Call, browser: str) -> str:
    return http_only(call.settings, rules.COOKIE, browser, max_age_s=rules.COOKIE_S, path=rules.COOKIE_PATH)


_PROVEN = (
    ErrorType.INVALID_CREDENTIALS,
    ErrorType.TOTP_REQUIRED,
    ErrorType.FORBIDDEN,
    ErrorType.NOT_FOUND,
    ErrorType.CONFLICT,
    ErrorType.INVALID_STATE,
)

_ANYONE = Area("Auth", access=Access.NONE)
_PEOPLE = Area("Auth", access=Access.SESSION, id_of=ids.Kind.IDENTITY)
OPERATIONS = (
    Operation(
        "GET",
        "/v1/auth/idp/start",
        get_start,
        "Begin signing in with the identity provider",
        _ANYONE,
        success=302,
        reply_type="text/plain",
        deadline_s=DEADLINE_S,
        refusals=(ErrorType.NOT_FOUND,),
    ),
    Operation(
        "GET",
        "/v1/auth/idp/callback",
        get_callback,
        "Finish signing in with the identity provider",
        _ANYONE,
        lenient_query=True,
        success=302,
        reply_type="text/plain",
        deadline_s=DEADLINE_S,
        refusals=(ErrorType.NOT_FOUND,),
    ),
    Operation(
        "GET",
        "/v1/auth/idp/nonce",
        get_nonce,
        "Get a nonce for the identity provider's one-tap button",
        _ANYONE,
        refusals=(ErrorType.NOT_FOUND,),
    ),
    Operation(
        "POST",
        "/v1/auth/idp/one-tap",
        post_one_tap,
        "Sign in with the id token of a one-tap button",
        _ANYONE,
        max_body_bytes=MAX_ANONYMOUS_BYTES,
        deadline_s=DEADLINE_S,
        refusals=(*_PROVEN, ErrorType.INVALID_ADDRESS),
    ),
    Operation(
        "POST",
        "/v1/auth/idp/totp",
        post_totp,
        "Finish a sign-in that asked for a code",
        _ANYONE,
        refusals=tuple(kind for kind in _PROVEN if kind is not ErrorType.TOTP_REQUIRED),
    ),
    Operation(
        "POST",
        "/v1/auth/idp/mobile/exchange",
        post_exchange,
        "Sign an app in with the code of its redirect",
        _ANYONE,
        refusals=_PROVEN,
    ),
    Operation(
        "GET",
        "/v1/auth/idp/identities",
        list_identities,
        "List your identities at the identity provider",
        _PEOPLE,
        page=ids.Kind.IDENTITY,
        refusals=(ErrorType.NOT_FOUND,),
    ),
    Operation(
        "DELETE",
        "/v1/auth/idp/identities/{id}",
        delete_identity,
        "Remove one of your identities",
        _PEOPLE,
        refusals=(ErrorType.INVALID_STATE,),
    ),
)
