"""Confirming and changing an address, and resetting and changing passwords, with links sent by mail."""

from datetime import datetime

from api.areas.email_verification.schemas import (
    ChangeEmail,
    ChangePassword,
    Forgot,
    Mailed,
    OtherWaysIn,
    Reset,
    WayIn,
    WithProof,
    WithToken,
)
from api.http import auth
from api.http.operation import Access, Area, Call, Operation
from api.http.session import renew_session
from engine.accounts.account_deletion import end_sign_up
from engine.base import clock
from engine.base.errors import ErrorType
from engine.people import change_email, change_password, forgot_password, verify_email
from engine.people.identity.rules import shown_name


async def post_verify(call: Call, body: WithProof) -> None:
    """Confirm the address with the token of a link."""
    device = auth.device(call.request)
    caller = await call.services.sessions.person(auth.session_secret(call.request), device)
    await verify_email.verify(call.services, body.token, device, password=body.password, caller=caller)


async def post_end_sign_up(call: Call, body: WithToken) -> None:
    """End a sign-up with the token of its mail: remove all access to it, and erase its account."""
    await end_sign_up.end_sign_up(call.services, body.token, auth.device(call.request))


async def post_send(call: Call) -> Mailed:
    """Mail another link to confirm the address."""
    await verify_email.send_again(call.services, call.person)
    return Mailed()


async def post_email_change(call: Call, body: ChangeEmail) -> Mailed:
    """Mail a link to the new address, and a notice to the old one."""
    await change_email.request_change(call.services, call.person, body.new_email, body.current_password)
    return Mailed()


async def post_email_confirm(call: Call, body: WithProof) -> None:
    """Use the new address from now on; the person's session in this request continues, all others end."""
    device = auth.device(call.request)
    caller = await call.services.sessions.person(auth.session_secret(call.request), device)
    made = await change_email.confirm(call.services, body.token, device, password=body.password, caller=caller)
    if made is not None:
        renew_session(call, made)


async def post_forgot(call: Call, body: Forgot) -> Mailed:
    """Mail a link to set a new password, if the address has a person."""
    await forgot_password.forgot(call.services, body.email, auth.device(call.request))
    return Mailed()


async def post_reset(call: Call, body: Reset) -> None:
    """Set a new password with the token of a link; every session of the person ends."""
    await forgot_password.reset(
        call.services, body.token, body.password, auth.device(call.request), remove_others=body.remove_others
    )


async def post_other_ways(call: Call, body: WithToken) -> OtherWaysIn:
    """List passkeys and identities of the person of a reset link, which this does not use up."""
    found = await forgot_password.other_ways_in(call.services, body.token, auth.device(call.request))
    issuer, name = call.settings.idp_issuer, call.settings.idp_name
    return OtherWaysIn(
        [_way_in(one.name, one.created_at, one.last_used_at) for one in found.passkeys],
        [
            _way_in(shown_name(name if one.issuer == issuer else None, one.issuer), one.created_at, one.used_at)
            for one in found.identities
        ],
    )


def _way_in(name: str, created_at: datetime, used_at: datetime | None) -> WayIn:
    return WayIn(name, clock.iso(created_at), clock.iso_or_none(used_at))


async def post_password_change(call: Call, body: ChangePassword) -> None:
    """Change the password; the session gets a new cookie and CSRF token, all others end."""
    made = await change_password.change_password(call.services, call.person, body.current_password, body.new_password)
    renew_session(call, made)


_ANYONE = Area("Auth", access=Access.NONE)
_PEOPLE = Area("Auth", access=Access.SESSION)
OPERATIONS = (
    Operation(
        "POST",
        "/v1/auth/verify-email",
        post_verify,
        "Confirm your address",
        _ANYONE,
        refusals=(ErrorType.INVALID_CREDENTIALS,),
    ),
    Operation(
        "POST",
        "/v1/auth/signup/end",
        post_end_sign_up,
        "End a sign-up that somebody else made with your address",
        _ANYONE,
    ),
    Operation(
        "POST",
        "/v1/auth/verify-email/send",
        post_send,
        "Send the link to confirm your address again",
        _PEOPLE,
        success=202,
        refusals=(ErrorType.INVALID_STATE,),
    ),
    Operation(
        "POST",
        "/v1/auth/email/change",
        post_email_change,
        "Request a change of your address",
        _PEOPLE,
        success=202,
        refusals=(ErrorType.INVALID_CREDENTIALS, ErrorType.INVALID_ADDRESS),
    ),
    Operation(
        "POST",
        "/v1/auth/email/change/confirm",
        post_email_confirm,
        "Confirm the new address; your session gets a new cookie, and its CSRF token in X-CSRF-Token",
        _ANYONE,
        refusals=(ErrorType.CONFLICT, ErrorType.INVALID_CREDENTIALS),
    ),
    Operation(
        "POST",
        "/v1/auth/password/forgot",
        post_forgot,
        "Request a link to set a new password",
        _ANYONE,
        success=202,
        refusals=(ErrorType.INVALID_ADDRESS,),
    ),
    Operation("POST", "/v1/auth/password/reset", post_reset, "Set a new password by a link", _ANYONE),
    Operation(
        "POST",
        "/v1/auth/password/reset/others",
        post_other_ways,
        "List what else signs in the person of a reset link",
        _ANYONE,
    ),
    Operation(
        "POST",
        "/v1/auth/password/change",
        post_password_change,
        "Change your password; the session gets a new cookie, and its CSRF token in X-CSRF-Token",
        _PEOPLE,
        refusals=(ErrorType.INVALID_CREDENTIALS,),
    ),
)
