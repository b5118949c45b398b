"""Registering passkeys, signing in with them, and managing one's own."""

from api.areas.passkeys.schemas import (
    BeginRegistration,
    CreationOptions,
    Descriptor,
    FinishRegistration,
    FinishSignIn,
    Owner,
    Parameter,
    Party,
    Passkey,
    PasskeyList,
    RegistrationOptions,
    RenamePasskey,
    RequestOptions,
    Selection,
    SignInOptions,
)
from api.http import auth
from api.http.body_limits import MAX_ANONYMOUS_BYTES
from api.http.cookies import http_only
from api.http.operation import Access, Area, Call, Operation
from api.http.paging import Page
from api.http.session import Session, session_reply
from engine.base import clock, ids
from engine.base.errors import ErrorType
from engine.people.passkeys import rules, store
from engine.people.passkeys import service as passkeys
from engine.people.passkeys.ceremony import Assertion, Attestation, text_of

MAX_REGISTRATION_BYTES = 128 * 1024  # 50,000 characters of base64url, and further members from browsers
_COOKIE_PATH = "/v1/auth/passkeys/login"
_LIFETIME_S = int(rules.LIFETIME.total_seconds())


async def post_register_options(call: Call, body: BeginRegistration) -> RegistrationOptions:
    """Return the options from which the browser creates a passkey."""
    begun = await passkeys.begin_registration(
        call.services, call.person, body.password, body.code, origin=_origin(call)
    )
    return RegistrationOptions(
        CreationOptions(
            rp=Party(begun.party.id, rules.NAME),
            user=Owner(text_of(begun.user_handle), begun.email, begun.name),
            challenge=text_of(begun.challenge),
            pub_key_cred_params=[Parameter("public-key", number) for number in rules.ALGORITHMS],
            timeout=_LIFETIME_S * 1000,
            exclude_credentials=[
                Descriptor(text_of(row.credential_id), "public-key", row.transports) for row in begun.known
            ],
            authenticator_selection=Selection("required", require_resident_key=True, user_verification="required"),
            attestation="none",
        )
    )


async def post_register_verify(call: Call, body: FinishRegistration) -> Passkey:
    """Store the passkey that the browser has created."""
    made = body.credential
    row = await passkeys.finish_registration(
        call.services,
        call.person,
        Attestation(made.id, made.raw_id, made.response.client_data_json, made.response.attestation_object),
        name=body.name,
        transports=made.response.transports,
    )
    return _shown(row)


async def list_passkeys(call: Call, page: Page) -> PasskeyList:
    """Return a page of the person's passkeys."""
    held = await store.LIST.fetch(call.services.pool, call.person.user_id)
    return PasskeyList(*page.among(held, _shown))


async def patch_passkey(call: Call, body: RenamePasskey) -> Passkey:
    """Rename a passkey."""
    return _shown(await passkeys.rename(call.services.pool, call.person, call.id, body.name))


async def delete_passkey(call: Call) -> None:
    """Remove a passkey."""
    await passkeys.remove(call.services, call.person, call.id)


async def post_login_options(call: Call) -> SignInOptions:
    """Return the challenge that a passkey signs to sign in; the reply must come from the same browser."""
    begun = await passkeys.begin_sign_in(call.services, _browser(call), origin=_origin(call))
    call.cookies = (
        http_only(call.settings, rules.BROWSER_COOKIE, begun.browser, max_age_s=_LIFETIME_S, path=_COOKIE_PATH),
    )
    return SignInOptions(RequestOptions(text_of(begun.challenge), _LIFETIME_S * 1000, begun.party.id, "required"))


async def post_login_verify(call: Call, body: FinishSignIn) -> Session:
    """Open a session for the person of the presented passkey."""
    shown = body.credential
    answer = Assertion(
        shown.id,
        shown.raw_id,
        shown.response.client_data_json,
        shown.response.authenticator_data,
        shown.response.signature,
        shown.response.user_handle,
    )
    device = auth.device(call.request)
    made = await passkeys.finish_sign_in(call.services, answer, _browser(call), device)
    call.cookies = (http_only(call.settings, rules.BROWSER_COOKIE, "", max_age_s=0, path=_COOKIE_PATH),)
    return await session_reply(call, made)


def _browser(call: Call) -> str | None:
    values = call.request.get_cookie_values(rules.BROWSER_COOKIE)
    return values[0] if values else None


def _origin(call: Call) -> str | None:
    origin: str | None = call.request.get_header("Origin")
    return origin


def _shown(row: store.PasskeyRow) -> Passkey:
    return Passkey(
        id=ids.format_id(ids.Kind.PASSKEY, row.id),
        name=row.name,
        created_at=clock.iso(row.created_at),
        last_used_at=clock.iso_or_none(row.last_used_at),
        backed_up=row.backed_up,
        transports=row.transports,
        suspected_at=clock.iso_or_none(row.suspected_at),
    )


_PEOPLE = Area("Auth", access=Access.SESSION, id_of=ids.Kind.PASSKEY)
_ANYONE = Area("Auth", access=Access.NONE)
OPERATIONS = (
    Operation(
        "POST",
        "/v1/auth/passkeys/register/options",
        post_register_options,
        "Begin to register a passkey",
        _PEOPLE,
        refusals=(ErrorType.INVALID_CREDENTIALS, ErrorType.INVALID_STATE),
    ),
    Operation(
        "POST",
        "/v1/auth/passkeys/register/verify",
        post_register_verify,
        "Register the passkey that the browser has created",
        _PEOPLE,
        max_body_bytes=MAX_REGISTRATION_BYTES,
        success=201,
        refusals=(ErrorType.CONFLICT, ErrorType.INVALID_STATE),
    ),
    Operation("GET", "/v1/auth/passkeys", list_passkeys, "List your passkeys", _PEOPLE, page=ids.Kind.PASSKEY),
    Operation("PATCH", "/v1/auth/passkeys/{id}", patch_passkey, "Rename a passkey", _PEOPLE),
    Operation(
        "DELETE",
        "/v1/auth/passkeys/{id}",
        delete_passkey,
        "Remove a passkey",
        _PEOPLE,
        refusals=(ErrorType.INVALID_STATE,),
    ),
    Operation(
        "POST",
        "/v1/auth/passkeys/login/options",
        post_login_options,
        "Begin to sign in with a passkey",
        _ANYONE,
        refusals=(ErrorType.INVALID_STATE,),
    ),
    Operation(
        "POST",
        "/v1/auth/passkeys/login/verify",
        post_login_verify,
        "Sign in with a passkey",
        _ANYONE,
        max_body_bytes=MAX_ANONYMOUS_BYTES,
        refusals=(ErrorType.INVALID_CREDENTIALS, ErrorType.UNAUTHORIZED, ErrorType.FORBIDDEN, ErrorType.INVALID_STATE),
    ),
)
