"""Setting up, enabling and disabling the second factor, and new recovery codes."""

from api.areas.second_factor.schemas import (
    Confirmed,
    Enable,
    Enabled,
    FactorState,
    RecoveryCodes,
    SetUp,
    Setup,
)
from api.http.cookies import session_cookie
from api.http.operation import Access, Call, Operation
from api.http.session import renew_session
from engine.base import clock
from engine.base.errors import ErrorType
from engine.people.second_factor import service as second_factor


async def get_state(call: Call) -> FactorState:
    """Return the state of the person's second factor."""
    found = await second_factor.state(call.services.pool, call.person.user_id)
    at = found.enabled_at
    return FactorState(at is not None, None if at is None else clock.iso(at), found.recovery_codes)


async def post_setup(call: Call) -> Setup:
    """Create a new secret, which is not required yet."""
    body: SetUp = call.body
    made = await second_factor.set_up(call.services, call.person, body.password)
    return Setup(made.secret, made.uri, made.svg)


async def post_enable(call: Call) -> Enabled:
    """Require codes from now on."""
    body: Enable = call.body
    made = await second_factor.enable(call.services, call.person, body.code)
    call.cookies = (session_cookie(call.settings, made.session.secret),)
    return Enabled(made.recovery_codes, made.session.csrf)


async def post_disable(call: Call) -> None:
    """Stop requiring codes; the session's new CSRF token is in a header, as the reply has no body."""
    body: Confirmed = call.body
    session = await second_factor.disable(call.services, call.person, body.password, body.code)
    renew_session(call, session)


async def post_recovery_codes(call: Call) -> RecoveryCodes:
    """Replace the recovery codes."""
    body: Confirmed = call.body
    return RecoveryCodes(await second_factor.replace_codes(call.services, call.person, body.password, body.code))


OPERATIONS = (
    Operation(
        method="GET",
        path="/v1/auth/2fa",
        tag="Auth",
        summary="Read the state of your second factor",
        access=Access.SESSION,
        reply=FactorState,
        handler=get_state,
    ),
    Operation(
        method="POST",
        path="/v1/auth/2fa/setup",
        tag="Auth",
        summary="Begin to set up an authenticator app",
        access=Access.SESSION,
        request=SetUp,
        reply=Setup,
        refusals=(ErrorType.INVALID_CREDENTIALS, ErrorType.INVALID_STATE),
        handler=post_setup,
    ),
    Operation(
        method="POST",
        path="/v1/auth/2fa/enable",
        tag="Auth",
        summary="Require codes of the authenticator app",
        access=Access.SESSION,
        request=Enable,
        reply=Enabled,
        refusals=(ErrorType.INVALID_CREDENTIALS, ErrorType.INVALID_STATE),
        handler=post_enable,
    ),
    Operation(
        method="POST",
        path="/v1/auth/2fa/disable",
        tag="Auth",
        summary="Stop requiring codes",
        access=Access.SESSION,
        request=Confirmed,
        success=204,
        refusals=(ErrorType.INVALID_CREDENTIALS, ErrorType.INVALID_STATE),
        handler=post_disable,
    ),
    Operation(
        method="POST",
        path="/v1/auth/2fa/recovery-codes",
        tag="Auth",
        summary="Replace your recovery codes",
        access=Access.SESSION,
        request=Confirmed,
        reply=RecoveryCodes,
        refusals=(ErrorType.INVALID_CREDENTIALS, ErrorType.INVALID_STATE),
        handler=post_recovery_codes,
    ),
)
