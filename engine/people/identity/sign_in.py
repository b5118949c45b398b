"""Sign in with an identity provider (OpenID Connect): by redirect, by its one-tap button, and for an app.

Each step has a one-time secret that is bound to the browser or to the app's verifier (PKCE). A person with a second
factor must give a code before a session or a link is made.
"""

from collections.abc import Mapping
from contextlib import suppress
from urllib.parse import quote, urlencode
from uuid import UUID

import structlog
from msgspec import Struct

from engine.base import clock, ids
from engine.base.errors import ErrorType, Refusal
from engine.base.netaddr import network_of
from engine.base.settings import Settings
from engine.cells.directory import ClaimedElsewhere
from engine.people.identity import rules, store
from engine.people.identity.id_tokens import BadToken
from engine.people.identity.links import recognise, record_use
from engine.people.identity.provider import IdentityProvider, ProviderDeclined, ProviderUnavailable
from engine.people.identity.services import IdentityServices
from engine.people.identity.types import PendingSignIn, Proven, SignInStep
from engine.people.log_in import slow_down
from engine.people.open_session import NewSession, open_session, revoke_one
from engine.people.people import store as people
from engine.people.second_factor.service import ELSEWHERE
from engine.people.second_factor.service import proven as proven_by
from engine.people.sessions import store as sessions
from engine.people.sessions.rules import Device

CALLBACK = "/v1/auth/idp/callback"
HOME_PAGE = "/console/"
SIGN_IN_PAGE = "/console/sign-in"  # reads `ticket`, `error` and `returnTo` out of the fragment
METHOD = "identity"
UNAVAILABLE_S = 30

_log = structlog.get_logger("identity")


class ProviderReturn(Struct, frozen=True):
    """The query parameters with which the provider returns the browser."""

    state: str | None
    code: str | None
    error: str | None
    issuer: str | None


class SignInRedirect(Struct, frozen=True):
    """The location that the browser is sent to, and its new session, if any."""

    location: str
    session: NewSession | None = None
    cell: str | None = None  # the browser should begin again in this one


class Nonce(Struct, frozen=True):
    """The data for the page with the one-tap button."""

    nonce: str
    client_id: str
    issuer: str
    name: str
    expires_in_s: int


def provider_of(services: IdentityServices) -> IdentityProvider:
    """Return the identity provider; raises 404 if none is configured."""
    if services.provider is None:
        raise Refusal(
            ErrorType.NOT_FOUND,
            "This instance has no identity provider. Sign in another way, or ask its operator for one.",
        )
    return services.provider


async def start(
    services: IdentityServices, browser: str, *, return_to: str | None, app_redirect: str | None, challenge: str | None
) -> str:
    """Return the provider's URL for the browser; `browser` is the secret of its cookie.

    Raises 400 for a `return_to` or `app_redirect` that is not allowed, 503 while the provider is unavailable.
    """
    provider, settings = provider_of(services), services.settings
    back = rules.checked_return(return_to)
    app, bound = rules.checked_app(app_redirect, challenge, settings.idp_app_redirects)
    try:
        description = await provider.describe()
    except ProviderUnavailable:
        raise _away() from None
    pepper, state = settings.pepper, ids.uuid7()
    waiting = PendingSignIn(
        state, browser=rules.browser_digest(browser), return_to=back, app_redirect=app, challenge=bound
    )
    await store.begin(services.pool, SignInStep.STATE, waiting, clock.now())
    return _extended(
        description.authorization_endpoint,
        {
            "response_type": "code",
            "client_id": provider.config.client_id,
            "redirect_uri": _callback(settings),
            "scope": provider.config.scopes,
            "state": rules.token_of(pepper, SignInStep.STATE, state),
            "nonce": rules.nonce_of(pepper, state),
            "code_challenge": rules.s256(rules.verifier_of(pepper, state)),
            "code_challenge_method": "S256",
        },
    )


async def handle_return(
    services: IdentityServices, came: ProviderReturn, browser: str | None, device: Device
) -> SignInRedirect:
    """Handle the browser's return from the provider: with a session, a ticket, a code for the app, or an error word."""
    provider, settings = provider_of(services), services.settings
    state = rules.step_of(settings.pepper, SignInStep.STATE, came.state or "")
    digest = rules.browser_digest(browser)
    waiting = None
    if state is not None and digest is not None:
        waiting = await store.take(services.pool, SignInStep.STATE, state, digest, clock.now())
    if waiting is None:
        return SignInRedirect(_page(settings, error="expired"))
    if came.error is not None:
        return _refused(settings, waiting, rules.error_code(came.error))
    try:
        proven = await _redeemed(provider, settings, waiting, came)
        return await _landed(services, waiting, proven, device)
    except Refusal as refusal:
        return _refused(settings, waiting, rules.word_for(refusal))
    except ClaimedElsewhere as elsewhere:
        given = {
            "returnTo": waiting.return_to, "appRedirect": waiting.app_redirect, "verifierChallenge": waiting.challenge,
        }  # fmt: skip
        again = {name: value for name, value in given.items() if value is not None}
        return SignInRedirect(_extended(f"{_home(settings)}/v1/auth/idp/start", again), cell=elsewhere.claim.cell)


async def give_nonce(services: IdentityServices, browser: str) -> Nonce:
    """Return a nonce for the one-tap button in this browser."""
    provider, settings = provider_of(services), services.settings
    made, at = ids.uuid7(), clock.now()
    waiting = PendingSignIn(made, browser=rules.browser_digest(browser))
    until = await store.begin(services.pool, SignInStep.NONCE, waiting, at)
    return Nonce(
        rules.token_of(settings.pepper, SignInStep.NONCE, made),
        provider.config.client_id,
        provider.config.issuer,
        rules.shown_name(settings.idp_name, provider.config.issuer),
        int((until - at).total_seconds()),
    )


async def one_tap(services: IdentityServices, credential: str, browser: str | None, device: Device) -> NewSession:
    """Return a session for an id token with a nonce of this browser; raises 401 `invalid_credentials` for an invalid
    one.

    Raises 401 `totp_required` with a ticket if the person has a second factor, 503 while the provider is unavailable.
    """
    provider, pepper = provider_of(services), services.settings.pepper
    digest = rules.browser_digest(browser)
    proven, nonce = await _checked(provider, credential, nonce=None)
    step = rules.step_of(pepper, SignInStep.NONCE, nonce)
    if step is None or digest is None:
        raise _does_not_hold("its nonce is unknown, or the browser has none")
    if await store.take(services.pool, SignInStep.NONCE, step, digest, clock.now()) is None:
        raise _does_not_hold("its nonce is used, expired, or belongs to another browser")
    person = await recognise(services, proven)
    done = PendingSignIn(ids.uuid7(), digest, person.user_id, proven.issuer, proven.subject)
    if person.has_totp:
        raise await _asks_for_code(services, done)
    return await _finish(services, done, METHOD, device)


async def show_code(
    services: IdentityServices, ticket: str, code: str, browser: str | None, device: Device
) -> NewSession:
    """Finish a sign-in with a code of the second factor.

    Raises 401 `invalid_credentials` for a wrong code, after which the ticket allows a few more; 400 once it does not.
    """
    provider_of(services)
    settings, at = services.settings, clock.now()
    await slow_down(services.limits, "idp-totp", None, device, settings)
    step = rules.step_of(settings.pepper, SignInStep.TICKET, ticket)
    digest = rules.browser_digest(browser)
    if step is None:
        raise rules.spent("ticket")
    waiting = await store.try_on(services.pool, SignInStep.TICKET, step, digest, at, max_tries=rules.MAX_TRIES)
    if waiting is None or waiting.user_id is None:
        raise rules.spent("ticket")
    factor = await proven_by(services, waiting.user_id, code, at, place=await _place(services, waiting.user_id, device))
    if factor is None:
        raise Refusal(ErrorType.INVALID_CREDENTIALS, "This code is wrong or already used. Wait for the next one.")
    done = await store.take(services.pool, SignInStep.TICKET, step, digest, at)
    if done is None:
        raise rules.spent("ticket")
    return await _finish(services, done, f"{METHOD}+{factor.value}", device)


async def exchange(services: IdentityServices, code: str, verifier: str, device: Device) -> NewSession:
    """Return a session for an app's code from its redirect and the verifier that the sign-in began with.

    The first use invalidates the code, with any verifier. Raises 401 `totp_required` with a ticket.
    """
    provider_of(services)
    step = rules.step_of(services.settings.pepper, SignInStep.APP_CODE, code)
    if step is None:
        raise rules.spent("code")
    waiting = await store.take(services.pool, SignInStep.APP_CODE, step, None, clock.now())
    if waiting is None or waiting.user_id is None or not rules.answers(waiting.challenge or "", verifier):
        raise rules.spent("code")
    person = await people.READ.first(services.pool, waiting.user_id)
    if person is not None and person.has_totp:
        raise await _asks_for_code(services, waiting)
    return await _finish(services, waiting, METHOD, device)


async def _redeemed(
    provider: IdentityProvider, settings: Settings, waiting: PendingSignIn, came: ProviderReturn
) -> Proven:
    """Redeem the browser's code at the provider; return the identity that it vouches for."""
    pepper = rules.pepper_of(settings.pepper, SignInStep.STATE, waiting.id, came.state or "")
    assert pepper is not None  # the state was checked before it was taken
    try:
        described = await provider.describe()
        # RFC 9207: the answer of another provider may be mixed up with this one's.
        if came.issuer is None and described.authorization_response_iss_parameter_supported:
            raise _does_not_hold("the response does not name its issuer")
        if came.code is None or came.issuer not in (None, provider.config.issuer):
            raise _does_not_hold("the response is another issuer's, or has no code")
        tokens = await provider.redeem(came.code, rules.verifier_of(pepper, waiting.id), _callback(settings))
    except ProviderUnavailable:
        raise _away() from None
    except ProviderDeclined as declined:
        raise _does_not_hold(f"the provider declines: {declined}") from None
    nonce = rules.nonce_of(pepper, waiting.id)
    proven, _ = await _checked(provider, tokens.id_token, nonce=nonce, access_token=tokens.access_token)
    if proven.email is None and tokens.access_token is not None:
        return await _asked_about(provider, proven, tokens.access_token)
    return proven


async def _checked(
    provider: IdentityProvider, token: str, *, nonce: str | None, access_token: str | None = None
) -> tuple[Proven, str]:
    try:
        return await provider.check(token, nonce=nonce, at=clock.machine_now(), access_token=access_token)
    except BadToken as bad:
        raise _does_not_hold(str(bad)) from None
    except ProviderUnavailable:
        raise _away() from None


async def _asked_about(provider: IdentityProvider, proven: Proven, access_token: str) -> Proven:
    try:
        return await provider.ask_about(proven, access_token)
    except BadToken as bad:
        raise _does_not_hold(str(bad)) from None
    except ProviderUnavailable:
        raise _away() from None


async def _landed(services: IdentityServices, waiting: PendingSignIn, proven: Proven, device: Device) -> SignInRedirect:
    person = await recognise(services, proven)
    done = PendingSignIn(
        ids.uuid7(), waiting.browser, person.user_id, proven.issuer, proven.subject, challenge=waiting.challenge
    )
    if waiting.app_redirect is not None:  # bound to the app's verifier, not to the browser
        code = await _hand_out(services, SignInStep.APP_CODE, done, browser=None)
        return SignInRedirect(_extended(waiting.app_redirect, {"code": code}))
    if person.has_totp:
        ticket = await _hand_out(services, SignInStep.TICKET, done, browser=waiting.browser)
        return SignInRedirect(_page(services.settings, ticket=ticket, returnTo=waiting.return_to))
    session = await _finish(services, done, METHOD, device)
    return SignInRedirect(_home(services.settings) + (waiting.return_to or HOME_PAGE), session)


async def _finish(services: IdentityServices, done: PendingSignIn, method: str, device: Device) -> NewSession:
    """Open the session of a person who has proven everything."""
    assert done.user_id is not None
    assert done.issuer is not None
    assert done.subject is not None
    pepper = services.settings.pepper
    await record_use(services, done.user_id, done.issuer, done.subject)
    made = await open_session(services.pool, pepper, done.user_id, method=method, device=device)
    if method == METHOD:
        person = await people.READ.first(services.pool, done.user_id)
        # Enabling a second factor ends existing sessions under the person's lock; a session opened right after it, on
        # a proof from before, is found here.
        if person is None or person.has_totp:
            with suppress(Refusal):  # enabling the second factor has already ended it
                await revoke_one(services.pool, done.user_id, made.id)
            raise rules.refused()
    return made


async def _place(services: IdentityServices, user: UUID, device: Device) -> str:
    """Return the key under which codes are counted: the network if the person has signed in from it, else the common
    one.
    """
    network = network_of(device.address)
    rows = await sessions.PLACES.records(services.pool, user)
    return network if network in {network_of(row["address"]) for row in rows} else ELSEWHERE


async def _asks_for_code(services: IdentityServices, done: PendingSignIn) -> Refusal:
    ticket = await _hand_out(services, SignInStep.TICKET, done, browser=done.browser)
    return Refusal(
        ErrorType.TOTP_REQUIRED,
        "A code of your second factor is needed: post it with this ticket to /v1/auth/idp/totp within five minutes.",
        ticket=ticket,
    )


async def _hand_out(services: IdentityServices, kind: SignInStep, done: PendingSignIn, *, browser: bytes | None) -> str:
    made = ids.uuid7()
    step = PendingSignIn(made, browser, done.user_id, done.issuer, done.subject, challenge=done.challenge)
    await store.begin(services.pool, kind, step, clock.now())
    return rules.token_of(services.settings.pepper, kind, made)


def _refused(settings: Settings, waiting: PendingSignIn, word: str) -> SignInRedirect:
    _log.info("sign-in refused", word=word)
    if waiting.app_redirect is not None:
        return SignInRedirect(_extended(waiting.app_redirect, {"error": word}))
    return SignInRedirect(_page(settings, error=word, returnTo=waiting.return_to))


def _does_not_hold(reason: str) -> Refusal:
    _log.info("identity not proven", reason=reason)
    return rules.refused()


def _away() -> Refusal:
    return Refusal(
        ErrorType.UNAVAILABLE,
        "The identity provider can't be reached right now. Try again shortly, or sign in another way.",
        retry_after_s=UNAVAILABLE_S,
    )


def _page(settings: Settings, **told: str | None) -> str:
    """Return the URL of the console's sign-in page with data in the fragment, which no server and no log receives."""
    words = {name: value for name, value in told.items() if value is not None}
    return f"{_home(settings)}{SIGN_IN_PAGE}#{urlencode(words, quote_via=quote)}"


def _extended(url: str, parameters: Mapping[str, str]) -> str:
    query = urlencode(parameters, quote_via=quote)
    return f"{url}{'&' if '?' in url else '?'}{query}"


def _home(settings: Settings) -> str:
    return settings.public_url.rstrip("/")


def _callback(settings: Settings) -> str:
    return _home(settings) + CALLBACK
