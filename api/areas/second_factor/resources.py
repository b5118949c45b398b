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
from api.http.operation import Access, Area, Call, Operation
from api.http.session import renew_session
from engine.base import clock
from engine.base.errors import ErrorType
from engine.people.second_factor import service as second_factor


async def get_state(call: Call) -> FactorState:
    """Return the state of the person's second factor."""
    found = await second_factor.state(call.services.pool, call.person.user_id)
    at = found.enabled_at
    return FactorState(at is not None, clock.iso_or_none(at), found.recovery_codes)


async def post_setup(call: Call, body: SetUp) -> Setup:
    """Create a new secret, which is not required yet."""
    made = await second_factor.set_up(call.services, call.person, body.password)
    return Setup(made.secret, made.uri, made.svg)


async def post_enable(call: Call, body: Enable) -> Enabled:
    """Require codes from now on."""
    made = await second_factor.enable(call.services, call.person, body.code)
    call.cookies = (session_cookie(call.settings, made.session.secret),)
    return Enabled(made.recovery_codes, made.session.csrf)


async def post_disable(call: Call, body: Confirmed) -> None:
    """Stop requiring codes; the session's new CSRF token is in a header, as the reply has no body."""
    session = await second_factor.disable(call.services, call.person, body.password, body.code)
    renew_session(call, session)


async def post_recovery_codes(call: Call, body: Confirmed) -> RecoveryCodes:
    """Replace the recovery codes."""
    return RecoveryCodes(await second_factor.replace_codes(call.services, call.person, body.password, body.code))


_PEOPLE = Area("Auth", access=Access.SESSION)
OPERATIONS = (
    Operation("GET", "/v1/auth/2fa", get_state, "Read the state of your second factor", _PEOPLE),
    Operation(
        "POST",
        "/v1/auth/2fa/setup",
        post_setup,
        "Begin to set up an authenticator app",
        _PEOPLE,
        refusals=(ErrorType.INVALID_CREDENTIALS, ErrorType.INVALID_STATE),
    ),
    Operation(
        "POST",
        "/v1/auth/2fa/enable",
        post_enable,
        "Require codes of the authenticator app",
        _PEOPLE,
        refusals=(ErrorType.INVALID_CREDENTIALS, ErrorType.INVALID_STATE),
    ),
    Operation(
        "POST",
        "/v1/auth/2fa/disable",
        post_disable,
        "Stop requiring codes",
        _PEOPLE,
        refusals=(ErrorType.INVALID_CREDENTIALS, ErrorType.INVALID_STATE),
    ),
    Operation(
        "POST",
        "/v1/auth/2fa/recovery-codes",
        post_recovery_codes,
        "Replace your recovery codes",
        _PEOPLE,
        refusals=(ErrorType.INVALID_CREDENTIALS, ErrorType.INVALID_STATE),
    ),
)
